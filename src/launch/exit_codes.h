// File: launch/exit_codes.h (internal)
// Exit codes of a rank that its launcher recognizes, in addition to the codes of hasten::Error.
#pragma once

namespace hasten {

// The rank's watchdog has ended it, because this rank or another one kept the others waiting too
// long. The number is EX_TEMPFAIL of sysexits.h (a failure that may pass), which user programs
// rarely use.
inline constexpr int kLateRankCode = 75;

}  // namespace hasten
