// The processor time that the calls of a test take. Other programs on the machine change it much
// less than the time that passes.
#pragma once

#include <ctime>

namespace hasten {

inline double seconds_of_clock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Returns the processor time of all threads of this process.
inline double processor_seconds() { return seconds_of_clock(CLOCK_PROCESS_CPUTIME_ID); }

// Returns the processor time of the calling thread.
inline double thread_seconds() { return seconds_of_clock(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace hasten
