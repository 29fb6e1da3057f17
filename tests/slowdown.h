// The factor by which a sanitizer slows a test down, or 1 without a sanitizer. Tests multiply their
// limits of computing time by it.
#pragma once

#if defined(__SANITIZE_THREAD__)
inline constexpr int kSlowdown = 15;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr int kSlowdown = 3;
#else
inline constexpr int kSlowdown = 1;
#endif
