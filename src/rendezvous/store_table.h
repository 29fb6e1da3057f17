// File: rendezvous/store_table.h (internal)
// The keys and values through which ranks find each other, with c10d::Store's operations. Requests
// come as messages; one that waits for a key is answered when the key is there or its time is over,
// then with the names of the keys that are missing.
//
//   request: its number, its kind, its fields       answer: the request's number, its kind, fields
//
// A connection asks one question at a time: its next request ends a wait that has no answer yet.
//
// What a request costs grows with its own length alone: waiters are found by the first key that
// they miss, and those of the same keys look at each of them together. One key may wake thousands
// of waiters, hence they are answered one at a time when the owner has time for it:
//
//   table.handle(connection, message, now);
//   while (table.has_woken()) table.answer_woken();
//
// No network and no clock of its own. Throws DataError "rendezvous.message". Thread rule: one
// thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "rendezvous/connection.h"
#include "rendezvous/message.h"

namespace hasten::rendezvous {

enum class StoreRequest : std::int64_t {
  set,          // key, value
  get,          // milliseconds, keys: waits, then their values
  wait,         // milliseconds, keys
  add,          // key, number: the sum
  compare_set,  // key, expected, desired: the value afterwards
  append,       // key, value
  check,        // keys: 1 if all exist
  erase,        // key: 1 if it existed
  count,        // how many keys
  list,         // their names
};
// missing: whether there are more than those named, names; refused: why.
enum class StoreAnswer : std::int64_t { done, missing, refused };

class StoreTable {
 public:
  using Reply = std::function<void(int connection, const std::string& message)>;
  explicit StoreTable(Reply reply) : reply_(std::move(reply)) {}

  void handle(int connection, std::string_view message, Clock::time_point now);
  // Waiters whose key has come, in that order.
  bool has_woken() const { return !woken_.empty(); }
  void answer_woken();               // one of them, or none if their keys have gone
  void forget(int connection);       // it is closed
  void tick(Clock::time_point now);  // answers those that have waited too long
  std::optional<Clock::time_point> next_deadline() const;
  void clear();  // for an attempt that must meet nothing of an earlier one

 private:
  struct Question {
    int connection;
    std::int64_t number;
  };
  // Keys that somebody waits for. The ranks of a group wait for the same ones, and are looked after
  // together.
  struct KeyList {
    std::string_view keys;    // as they came: each with its length before it
    std::set<int> waiting{};  // connections
    std::size_t next = 0;     // where in `keys` the first one is that is missing
    std::string missing{};    // that key
    bool is_woken = false;    // it has come
    // At these changes of the table all keys were there, and `values` was made of theirs.
    std::int64_t complete_at = -1, packed_at = -1;
    std::string values{};
    bool are_too_long = false;
  };
  struct Waiting {
    Question question;
    Clock::time_point deadline;
    bool wants_values;
    KeyList* list;
  };
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view key) const {
      return std::hash<std::string_view>()(key);
    }
  };
  template <typename Value>
  using ByKey = std::unordered_map<std::string, Value, Hash, std::equal_to<>>;

  void answer_request(const Question& question, StoreRequest request, Unpacker& fields,
                      Clock::time_point now);
  void set(const Question& question, Unpacker& fields);
  void get_or_wait(const Question& question, Unpacker& fields, bool wants_values,
                   Clock::time_point now);
  void add(const Question& question, Unpacker& fields);
  void compare_set(const Question& question, Unpacker& fields);
  void append(const Question& question, Unpacker& fields);
  void check(const Question& question, Unpacker& fields);
  void list(const Question& question);

  void tell(const Question& question, const Packer& answer);
  void refuse(const Question& question, std::string_view why);
  bool is_complete(KeyList& list) const;
  bool reaches_end(KeyList& list) const;
  void pack_values(KeyList& list) const;
  void answer_from(KeyList& list, const Question& question, bool wants_values);
  void wait_for_missing(KeyList& list);
  void wake_waiters(std::string_view key);
  void tell_missing(const Waiting& waiting);
  void stop_waiting(int connection);

  Reply reply_;
  ByKey<std::string> values_;
  std::int64_t changes_ = 0;                  // of the values
  std::unordered_map<int, Waiting> waiting_;  // by connection
  ByKey<KeyList> lists_;                      // that somebody waits for, by `keys`
  ByKey<std::set<KeyList*>> lists_of_;        // by the first key that is missing
  std::deque<KeyList*> woken_;
  std::set<std::pair<Clock::time_point, int>> deadlines_;
};

}  // namespace hasten::rendezvous
