// File: rendezvous/settings.h (internal)
// How machines come together: how many they are, and how long they wait for each other.
// Thread rule: a value.
#pragma once

#include <cstdint>

namespace hasten::rendezvous {

struct Settings {
  std::int64_t min_machines = 1;
  std::int64_t max_machines = 1;
  std::int64_t max_restarts = 0;
  double join_timeout = 600;       // seconds for a round to come together
  double last_call = 30;           // seconds for others to come, once min_machines are there
  double keep_alive_timeout = 30;  // seconds after which a machine that says nothing is lost
  bool same_program = true;        // the program's bytes are the same on all machines
  bool is_elastic() const { return min_machines != max_machines; }
};

}  // namespace hasten::rendezvous
