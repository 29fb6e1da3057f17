// The most memory that this process has had resident so far, in KiB. A test that compares two calls
// must have no larger test before it in its file.
#pragma once

#include <sys/resource.h>

namespace hasten::test {

inline long peak_memory_kib() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return used.ru_maxrss;
}

}  // namespace hasten::test
