// File: rendezvous/strangers.h (internal)
// The connections of a server that have not yet proved that they know the token: which one is
// dropped to make room for another, and which have taken too long.
//
//   if (const auto id = strangers.one_too_many()) drop(*id);
//   strangers.add(id, "10.0.0.7", now);
//   strangers.has_answered(id);  // its first message can be created only with the token
//   strangers.remove(id);        // it is known, or closed
//
// The oldest connection of the address that has most is dropped: a machine of the job has few at a
// time and completes them within milliseconds. One whose first message was right is dropped only if
// there is no other. An honest client that is dropped tries again.
//
// Thread rule: one thread.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace hasten::rendezvous {

class Strangers {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kMost = 256;                // The maximum at once.
  static constexpr auto kLimit = std::chrono::seconds(5);  // The time limit of the handshake.

  // Each id is greater than those before it.
  void add(int id, std::string address, Clock::time_point now) {
    all_.emplace_hint(all_.end(), id, Stranger{std::move(address), now});
  }
  void has_answered(int id) {
    const auto found = all_.find(id);
    if (found != all_.end()) found->second.was_right = true;
  }
  void remove(int id) { all_.erase(id); }

  std::optional<int> one_too_many() const {
    if (all_.size() < kMost) return std::nullopt;
    return oldest();
  }
  // The one to drop if room is needed for another reason.
  std::optional<int> oldest() const {
    const auto silent = oldest_of_most(/*was_right=*/false);
    return silent ? silent : oldest_of_most(/*was_right=*/true);
  }

  // Ids are in order of arrival, so the late ones come first.
  std::vector<int> late(Clock::time_point now) const {
    std::vector<int> ids;
    for (auto each = all_.begin(); each != all_.end() && now > each->second.came + kLimit; ++each)
      ids.push_back(each->first);
    return ids;
  }
  std::optional<Clock::time_point> next_deadline() const {
    if (all_.empty()) return std::nullopt;
    return all_.begin()->second.came + kLimit;
  }

 private:
  struct Stranger {
    std::string address;
    Clock::time_point came;
    bool was_right = false;
  };
  struct OfAddress {
    std::size_t count = 0;
    int oldest = 0;
  };

  std::optional<int> oldest_of_most(bool was_right) const {
    std::map<std::string_view, OfAddress> addresses;
    const OfAddress* most = nullptr;
    for (const auto& [id, stranger] : all_) {
      if (stranger.was_right != was_right) continue;
      OfAddress& here = addresses[stranger.address];
      if (here.count++ == 0) here.oldest = id;
      if (most == nullptr || here.count > most->count) most = &here;
    }
    if (most == nullptr) return std::nullopt;
    return most->oldest;
  }

  std::map<int, Stranger> all_;  // By id, so the oldest is first.
};

}  // namespace hasten::rendezvous
