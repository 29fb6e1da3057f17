// File: rendezvous/store_table.h (internal)
// The keys and values through which ranks find each other, with c10d::Store's operations. Requests
// come as messages; one that waits for a key is answered when the key is there or its time is over,
// then with the names of the keys that are missing.
//
// No network and no clock of its own. Throws DataError "rendezvous.message". Thread rule: one
// thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/connection.h"

namespace hasten::rendezvous {

enum class StoreRequest : std::int64_t {
  set,          // key, value
  get,          // milliseconds, keys: waits, then their values
  wait,         // milliseconds, keys
  add,          // key, number: the sum
  compare_set,  // key, expected, desired: the value afterwards
  append,       // key, value
  check,        // keys: 1 where all are there
  erase,        // key: 1 where it was there
  count,        // how many keys
  list,         // their names
};
enum class StoreAnswer : std::int64_t { done, missing, refused };

class StoreTable {
 public:
  using Reply = std::function<void(int connection, const std::string& message)>;
  explicit StoreTable(Reply reply) : reply_(std::move(reply)) {}

  void handle(int connection, std::string_view message, Clock::time_point now);
  void forget(int connection);       // it is closed
  void tick(Clock::time_point now);  // those that have waited too long
  std::optional<Clock::time_point> next_deadline() const;
  void clear();  // for an attempt that must meet nothing of an earlier one

 private:
  struct Waiting {
    int connection;
    Clock::time_point deadline;
    std::vector<std::string> keys;
    bool wants_values;
  };
  bool is_waiting(int connection) const;
  bool try_answer(const Waiting& waiting);
  void changed();  // a key came

  Reply reply_;
  std::map<std::string, std::string, std::less<>> values_;
  std::list<Waiting> waiting_;
};

}  // namespace hasten::rendezvous
