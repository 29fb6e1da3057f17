// File: rendezvous/newcomers.h (internal)
// Decides how long a machine that comes during a round must stay before the others restart to
// include it. A launcher that always ends soon after its start would otherwise restart them again
// and again, so a host's wait doubles with each restart for it.
//
//   if (now - came >= newcomers.wait_of(host, now)) newcomers.taken_in(host, now);
//
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "rendezvous/settings.h"

namespace hasten::rendezvous {

class Newcomers {
 public:
  using Clock = std::chrono::steady_clock;

  // A host's wait grows from `last_call` to `join_timeout`. It starts over if the last restart for
  // the host is more than twice the longest wait ago.
  explicit Newcomers(const Settings& settings)
      : shortest_(settings.last_call),
        longest_(settings.join_timeout > settings.last_call ? settings.join_timeout
                                                            : settings.last_call) {}

  Clock::duration wait_of(const std::string& host, Clock::time_point now) const {
    const auto found = hosts_.find(host);
    if (found == hosts_.end() || is_forgotten(found->second, now)) return seconds(shortest_);
    return seconds(found->second.wait);
  }

  void taken_in(const std::string& host, Clock::time_point now) {
    std::erase_if(hosts_, [&](const auto& each) { return is_forgotten(each.second, now); });
    const auto [found, is_new] = hosts_.try_emplace(host, Host{shortest_, now});
    found->second.wait = std::min(found->second.wait * 2, longest_);
    found->second.taken_in = now;
  }

 private:
  struct Host {
    double wait;
    Clock::time_point taken_in;
  };
  static Clock::duration seconds(double count) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(count));
  }
  bool is_forgotten(const Host& host, Clock::time_point now) const {
    return now - host.taken_in > 2 * seconds(longest_);
  }

  double shortest_, longest_;
  std::map<std::string, Host> hosts_;
};

}  // namespace hasten::rendezvous
