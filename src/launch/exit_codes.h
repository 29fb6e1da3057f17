// File: launch/exit_codes.h (internal)
// Codes with which a rank ends that mean something to its launcher, beside those of hasten::Error.
#pragma once

namespace hasten {

// The watchdog has ended it: a rank, this or another, has kept the others waiting too long.
// That of sysexits.h for what may go well another time, which a program of yours hardly uses.
inline constexpr int kLateRankCode = 75;

}  // namespace hasten
