// File: rendezvous/store_client.h (internal)
// One connection to the keys and values of a job, waiting for each answer.
//
// Throws IoError "rendezvous.connect", "rendezvous.lost", "rendezvous.time" (with the keys that did
// not come), DataError "rendezvous.message". Thread rule: calls take turns.
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
  // Tries until the store is there or the time is over.
  StoreClient(Endpoint store, std::string token, std::chrono::milliseconds timeout);

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
  // The answer's fields; `longest` is what the store itself may wait.
  Unpacker ask(const Packer& request, std::string_view what,
               std::chrono::milliseconds longest = {});

  Endpoint store_;
  std::string token_;
  SecureContext context_;
  std::unique_ptr<Connection> connection_;
  std::mutex turn_;
  std::string answer_;
};

}  // namespace hasten::rendezvous
