// File: rendezvous/store_table.h (internal)
// The keys and values through which ranks find each other, with c10d::Store's operations. A request
// for missing keys is answered when they exist, or after its timeout with the names of the missing
// ones.
//
//   request: its number, its kind, its fields       answer: the request's number, its kind, fields
//
// A connection has one request at a time: its next request cancels a request that waits, which gets
// no answer.
//
// The cost of a request depends only on its own length: waiting requests are found by the first key
// that they miss, and requests for the same keys are checked together. One key can complete
// thousands of requests, so they are answered one at a time when the owner has time:
//
//   table.handle(connection, message, now);
//   while (table.has_ready_request()) table.answer_ready_request();
//
// It uses no network or clock. Throws DataError "rendezvous.message". Thread rule: one thread.
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
  set,          // Fields: key, value.
  get,          // Fields: milliseconds, keys. Waits, then returns the values.
  wait,         // Fields: milliseconds, keys.
  add,          // Fields: key, number. Returns the sum.
  compare_set,  // Fields: key, expected, desired. Returns the value afterwards.
  append,       // Fields: key, value.
  check,        // Fields: keys. Returns 1 if all exist.
  erase,        // Fields: key. Returns 1 if it existed.
  count,        // Returns the number of keys.
  list,         // Returns their names.
};
// The fields of `missing` are a flag (1 if more keys are missing than it names) and the names. The
// field of `refused` is the reason.
enum class StoreStatus : std::int64_t { done, missing, refused };

class StoreTable {
 public:
  using Reply = std::function<void(int connection, const std::string& message)>;
  explicit StoreTable(Reply reply) : reply_(std::move(reply)) {}

  void handle(int connection, std::string_view message, Clock::time_point now);
  // True if a key has arrived for which requests wait. They are answered in the order in which the
  // keys arrived.
  bool has_ready_request() const { return !ready_.empty(); }
  // Answers one of them, or none if their keys have been erased.
  void answer_ready_request();
  void remove_connection(int connection);  // Call it when the connection is closed.
  void tick(Clock::time_point now);        // Answers requests that have waited too long.
  std::optional<Clock::time_point> next_deadline() const;
  // Deletes everything, because a new attempt must see nothing of an earlier one.
  void clear();

 private:
  struct RequestId {
    int connection;
    std::int64_t number;
  };
  // Keys that requests wait for. The ranks of a group wait for the same keys and share one list.
  struct KeyList {
    std::string_view keys;    // As received: a length precedes each key.
    std::set<int> waiting{};  // The connections that wait.
    std::size_t next = 0;     // The offset in `keys` of the first missing key.
    std::string missing{};    // The first missing key.
    bool is_ready = false;    // True if `missing` has arrived.
    // The value of `changes_` when all keys existed, and its value when `values` was built.
    std::int64_t complete_at = -1, packed_at = -1;
    std::string values{};
    bool values_too_long = false;
  };
  struct WaitingRequest {
    RequestId id;
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

  void answer_request(const RequestId& id, StoreRequest request, Unpacker& fields,
                      Clock::time_point now);
  void set(const RequestId& id, Unpacker& fields);
  void get_or_wait(const RequestId& id, Unpacker& fields, bool wants_values, Clock::time_point now);
  void add(const RequestId& id, Unpacker& fields);
  void compare_set(const RequestId& id, Unpacker& fields);
  void append(const RequestId& id, Unpacker& fields);
  void check(const RequestId& id, Unpacker& fields);
  void list(const RequestId& id);

  void reply(const RequestId& id, const Packer& answer);
  void reply_refused(const RequestId& id, std::string_view why);
  bool is_complete(KeyList& list) const;
  bool reaches_end(KeyList& list) const;
  void pack_values(KeyList& list) const;
  void answer_from(KeyList& list, const RequestId& id, bool wants_values);
  void wait_for_missing(KeyList& list);
  void mark_waiters_ready(std::string_view key);
  void reply_missing(const WaitingRequest& waiting);
  void stop_waiting(int connection);

  Reply reply_;
  ByKey<std::string> values_;
  std::int64_t changes_ = 0;                         // Counts changes of the values.
  std::unordered_map<int, WaitingRequest> waiting_;  // Keyed by connection.
  ByKey<KeyList> lists_;                             // Keyed by `keys`.
  ByKey<std::set<KeyList*>> lists_by_missing_key_;   // Keyed by the first missing key.
  std::deque<KeyList*> ready_;
  std::set<std::pair<Clock::time_point, int>> deadlines_;
};

}  // namespace hasten::rendezvous
