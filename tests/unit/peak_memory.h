// Returns the peak resident memory of this process so far, in KiB. If a test compares two calls, no
// test before it in its file may need more memory.
#pragma once

#include <sys/resource.h>

namespace hasten::test {

inline long peak_memory_kib() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return used.ru_maxrss;
}

}  // namespace hasten::test
