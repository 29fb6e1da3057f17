// File: rendezvous/store_client.h (internal)
// A connection to the keys and values of a job. Calls block until the server answers.
//
//   StoreClient store({.host = "10.0.0.1", .port = 29500}, token, 10min);
//   store.set("rank 0", "here");
//   store.wait({"rank 1"}, 1min);
//
// If the server closes the connection before it has answered, it is busy, and the constructor tries
// again until the timeout. The time during which this process is suspended does not count. Only a
// TLS alert means that the token is wrong. Requests are numbered, so the late answer to a call that
// has timed out is skipped; the server may have executed the call.
//
// Throws IoError "rendezvous.connect", "rendezvous.refused", "rendezvous.version",
// "rendezvous.lost", "rendezvous.time" (with the missing keys), UsageError "rendezvous.store" and
// DataError "rendezvous.message". Thread rule: any thread; calls take turns.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/internal_api.h"
#include "rendezvous/connection.h"
#include "rendezvous/message.h"
#include "rendezvous/sockets.h"
#include "rendezvous/store_table.h"

namespace hasten::rendezvous {

class HASTEN_INTERNAL_API StoreClient {
 public:
  // Returns when the server has answered. An answer may take `response_timeout`, in addition to the
  // time that the server is asked to wait.
  StoreClient(Endpoint store, std::string token, std::chrono::milliseconds timeout,
              std::chrono::milliseconds response_timeout = std::chrono::seconds(30));

  void set(std::string_view key, std::string_view value);
  std::vector<std::string> get(const std::vector<std::string>& keys,
                               std::chrono::milliseconds timeout);
  void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout);
  std::int64_t add(std::string_view key, std::int64_t number);
  std::string compare_set(std::string_view key, std::string_view expected,
                          std::string_view desired);
  void append(std::string_view key, std::string_view value);
  bool check(const std::vector<std::string>& keys);
  bool erase(std::string_view key);
  std::int64_t count();
  std::vector<std::string> list();

  const Endpoint& store() const { return store_; }
  const std::string& token() const { return token_; }
  // This machine's address on the route to the server.
  std::string own_address() const { return local_address(connection_->descriptor()); }

 private:
  void connect(std::chrono::milliseconds timeout);
  // Returns whether the server has answered; if not, `last_failure_` says why.
  bool try_to_connect(RunningClock& clock, Clock::time_point deadline);
  bool receive_greeting(RunningClock& clock, Clock::time_point deadline);

  Packer request(StoreRequest kind);
  // Returns the answer's fields. The server may wait for `timeout`.
  Unpacker call(const Packer& request, std::string_view what,
                std::chrono::milliseconds timeout = {});

  Endpoint store_;
  std::string token_;
  std::chrono::milliseconds response_timeout_;
  SecureContext context_;
  std::unique_ptr<Connection> connection_;
  std::string last_failure_;  // Why the last attempt to connect failed.
  std::mutex mutex_;
  std::int64_t number_ = 0;  // The number of the last request.
  std::string answer_;
};

}  // namespace hasten::rendezvous
