// File: rendezvous/join_delays.h (internal)
// Decides how long a machine that comes during a round must stay before the others restart to
// include it. A launcher that always ends soon after it starts would otherwise restart them again
// and again. So a host's wait doubles with each restart for it.
//
//   if (now - arrived_at >= delays.delay_for(host, now)) delays.record_restart(host, now);
//
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "rendezvous/coordinator_settings.h"

namespace hasten::rendezvous {

class JoinDelays {
 public:
  using Clock = std::chrono::steady_clock;

  // A host's wait grows from `last_call_timeout` to `join_timeout`. It starts over if more than
  // twice the longest wait has passed since the last restart for the host.
  explicit JoinDelays(const CoordinatorSettings& settings)
      : shortest_(settings.last_call_timeout),
        longest_(settings.join_timeout > settings.last_call_timeout ? settings.join_timeout
                                                                    : settings.last_call_timeout) {}

  Clock::duration delay_for(const std::string& host, Clock::time_point now) const {
    const auto found = hosts_.find(host);
    if (found == hosts_.end() || is_forgotten(found->second, now)) return seconds(shortest_);
    return seconds(found->second.wait);
  }

  void record_restart(const std::string& host, Clock::time_point now) {
    std::erase_if(hosts_, [&](const auto& each) { return is_forgotten(each.second, now); });
    const auto [found, is_new] = hosts_.try_emplace(host, Host{shortest_, now});
    found->second.wait = std::min(found->second.wait * 2, longest_);
    found->second.restarted_at = now;
  }

 private:
  struct Host {
    double wait;
    Clock::time_point restarted_at;
  };
  static Clock::duration seconds(double count) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(count));
  }
  bool is_forgotten(const Host& host, Clock::time_point now) const {
    return now - host.restarted_at > 2 * seconds(longest_);
  }

  double shortest_, longest_;
  std::map<std::string, Host> hosts_;
};

}  // namespace hasten::rendezvous
