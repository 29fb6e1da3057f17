// The number of times by which a sanitizer slows a test down; 1 without one. Limits of computing
// time are multiplied by it.
#pragma once

#if defined(__SANITIZE_THREAD__)
inline constexpr int kSlowdown = 15;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr int kSlowdown = 3;
#else
inline constexpr int kSlowdown = 1;
#endif
