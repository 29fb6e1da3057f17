// File: rendezvous/coordinator_settings.h (internal)
// The number of machines in a job, and how long they wait for each other. Thread rule: a value.
#pragma once

#include <cstdint>

namespace hasten::rendezvous {

struct CoordinatorSettings {
  std::int64_t min_machines = 1;
  std::int64_t max_machines = 1;
  std::int64_t max_restarts = 0;
  int earlier_restarts = 0;        // By a scheduler that has started the whole job again.
  double join_timeout = 600;       // Seconds for a round to gather.
  double last_call_timeout = 30;   // Seconds to wait for others once min_machines are present.
  double keep_alive_timeout = 30;  // Seconds until a silent machine counts as lost.
  bool same_program = true;        // All machines must have the same program file.
  bool is_elastic() const { return min_machines != max_machines; }
};

}  // namespace hasten::rendezvous
