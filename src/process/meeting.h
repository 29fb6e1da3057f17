// File: process/meeting.h (internal)
// Where the ranks of a job find each other: whose store, and by which address this process is
// reached. Throws IoError "rendezvous.*", ConfigError "rendezvous.*".
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "hasten/launch/worker.h"

namespace hasten {

namespace rendezvous {
class JobServer;
}

struct Meeting {
  std::shared_ptr<rendezvous::JobServer> server;  // in rank 0, where no launcher serves the store
  c10::intrusive_ptr<c10d::Store> store;          // keys of this attempt alone
  std::string own_address;
  std::string token;          // the job's; empty: it has none
  bool encrypt = false;       // what ranks of different machines say to each other
  bool must_encrypt = false;  // it was asked for, and there are several machines
};

// `encrypt`: what the program says; unset: HASTEN_ENCRYPT, or else whether there is a token. Throws
// ConfigError "process.encryption" where encryption is asked for without a token.
Meeting meeting_of(const Worker& worker, const config::Environment& environment,
                   std::chrono::milliseconds timeout, std::optional<bool> encrypt = {});

}  // namespace hasten
