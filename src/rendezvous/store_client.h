// File: rendezvous/store_client.h (internal)
// One connection to the keys and values of a job, waiting for each answer.
//
//   StoreClient store({.host = "10.0.0.1", .port = 29500}, token, 10min);
//   store.set("rank 0", "here");
//   store.wait({"rank 1"}, 1min);
//
// A server that closes the connection before it has answered is busy, and is asked again until the
// time is over; only its TLS alert says that the token is wrong. Requests are numbered: after a
// call that has thrown for lack of time the late answer is passed over, and the store may have done
// what it was asked all the same.
//
// Throws IoError "rendezvous.connect", "rendezvous.refused", "rendezvous.version",
// "rendezvous.lost", "rendezvous.time" (with the keys that did not come), UsageError
// "rendezvous.store", DataError "rendezvous.message". Thread rule: calls take turns.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/connection.h"
#include "rendezvous/message.h"
#include "rendezvous/sockets.h"
#include "rendezvous/store_table.h"

namespace hasten::rendezvous {

class StoreClient {
 public:
  // Returns when the store has answered. `for_an_answer`: how long an answer may take, beside the
  // time that the store itself is asked to wait.
  StoreClient(Endpoint store, std::string token, std::chrono::milliseconds timeout,
              std::chrono::milliseconds for_an_answer = std::chrono::seconds(30));

  void set(std::string_view key, std::string_view value);
  std::vector<std::string> get(const std::vector<std::string>& keys,
                               std::chrono::milliseconds longest);
  void wait(const std::vector<std::string>& keys, std::chrono::milliseconds longest);
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
  // This machine's address on the way to the store.
  std::string own_address() const { return local_address(connection_->file()); }

 private:
  void connect(Clock::time_point deadline, std::chrono::milliseconds timeout);
  // Whether the store has answered; if not, `why_`.
  bool try_to_connect(Clock::time_point deadline);
  bool hear_greeting(Clock::time_point deadline);

  Packer request(StoreRequest kind);
  // The answer's fields; `longest` is what the store itself may wait.
  Unpacker ask(const Packer& request, std::string_view what,
               std::chrono::milliseconds longest = {});

  Endpoint store_;
  std::string token_;
  std::chrono::milliseconds for_an_answer_;
  SecureContext context_;
  std::unique_ptr<Connection> connection_;
  std::string why_;  // the last attempt to connect has failed
  std::mutex turn_;
  std::int64_t number_ = 0;  // of the last request
  std::string answer_;
};

}  // namespace hasten::rendezvous
