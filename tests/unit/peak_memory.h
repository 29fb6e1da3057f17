// Returns the peak resident memory of this process so far, in KiB. If a test compares two calls, no
// test before it in its file may need more memory.
#pragma once

#include <sys/resource.h>

namespace hasten::test {

// The memory that an allocation may take, as a multiple of its size. AddressSanitizer surrounds
// each allocation with unused bytes.
#ifdef __SANITIZE_ADDRESS__
inline constexpr long kMemoryPerByte = 4;
#else
inline constexpr long kMemoryPerByte = 1;
#endif

inline long peak_memory_kib() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return used.ru_maxrss;
}

}  // namespace hasten::test
