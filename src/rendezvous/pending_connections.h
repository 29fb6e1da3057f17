// File: rendezvous/pending_connections.h (internal)
// Keeps the connections of a server that have not yet proved that they know the token. Decides
// which one is dropped to make room for another, and which ones have taken too long.
//
//   if (const auto id = pending.connection_to_evict()) drop(*id);
//   pending.add(id, "10.0.0.7", now);
//   pending.mark_valid(id);  // its first message can be created only with the token
//   pending.remove(id);        // it is known, or closed
//
// The oldest connection of the address with the most connections is dropped, because a machine of
// the job has few at a time and completes them within milliseconds. A connection with a valid first
// message is dropped only if there is no other. A legitimate client that is dropped
// tries again.
//
// Thread rule: one thread.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace hasten::rendezvous {

class PendingConnections {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kMaxCount = 256;            // The maximum number at once.
  static constexpr auto kLimit = std::chrono::seconds(5);  // The time limit of the handshake.

  // Each id must be greater than all earlier ids.
  void add(int id, std::string address, Clock::time_point now) {
    all_.emplace_hint(all_.end(), id, PendingConnection{std::move(address), now});
  }
  void mark_valid(int id) {
    const auto found = all_.find(id);
    if (found != all_.end()) found->second.is_valid = true;
  }
  void remove(int id) { all_.erase(id); }

  std::optional<int> connection_to_evict() const {
    if (all_.size() < kMaxCount) return std::nullopt;
    return oldest();
  }
  // Returns the connection to drop if room is needed for another reason.
  std::optional<int> oldest() const {
    const auto silent = oldest_of_busiest_address(/*is_valid=*/false);
    return silent ? silent : oldest_of_busiest_address(/*is_valid=*/true);
  }

  // Ids are in order of arrival, so the expired ones come first.
  std::vector<int> expired(Clock::time_point now) const {
    std::vector<int> ids;
    for (auto each = all_.begin(); each != all_.end() && now > each->second.accepted_at + kLimit;
         ++each)
      ids.push_back(each->first);
    return ids;
  }
  std::optional<Clock::time_point> next_deadline() const {
    if (all_.empty()) return std::nullopt;
    return all_.begin()->second.accepted_at + kLimit;
  }

 private:
  struct PendingConnection {
    std::string address;
    Clock::time_point accepted_at;
    bool is_valid = false;
  };
  struct AddressCount {
    std::size_t count = 0;
    int oldest = 0;
  };

  std::optional<int> oldest_of_busiest_address(bool is_valid) const {
    std::map<std::string_view, AddressCount> addresses;
    const AddressCount* busiest = nullptr;
    for (const auto& [id, connection] : all_) {
      if (connection.is_valid != is_valid) continue;
      AddressCount& entry = addresses[connection.address];
      if (entry.count++ == 0) entry.oldest = id;
      if (busiest == nullptr || entry.count > busiest->count) busiest = &entry;
    }
    if (busiest == nullptr) return std::nullopt;
    return busiest->oldest;
  }

  std::map<int, PendingConnection> all_;  // By id, so the oldest is first.
};

}  // namespace hasten::rendezvous
