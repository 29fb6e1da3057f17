// File: process/group/store_setup.h (internal)
// Determines how the ranks of a job find each other: which store they use, and at which address
// they reach this process. Throws IoError "rendezvous.*" and ConfigError "rendezvous.*".
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

struct StoreSetup {
  // Serves the store on rank 0 if there is a token and no launcher serves the store; else null.
  std::shared_ptr<rendezvous::JobServer> server;
  c10::intrusive_ptr<c10d::Store> store;  // has keys of this attempt and group only
  std::string own_address;                // other ranks reach this process there
  std::string token;                      // the job's token; empty if it has none
  bool encrypt = false;       // messages between ranks of different machines are encrypted
  bool must_encrypt = false;  // encryption was requested, and there are several machines
};

// `encrypt` is the program's choice. If it is unset, HASTEN_ENCRYPT decides. If that is unset too,
// messages are encrypted if the job has a token. Throws ConfigError "process.encryption" if
// encryption is requested without a token, or if HASTEN_ENCRYPT is not a boolean.
StoreSetup set_up_store(const Worker& worker, const config::Environment& environment,
                        std::chrono::milliseconds timeout, std::optional<bool> encrypt = {});

}  // namespace hasten
