// File: cli/test_machine.h
// The checks of `hasten test` for this machine alone: what the launcher promises for processes that
// die or hang, and which processes may join a job. They start launchers of tiny processes. The
// check of the watchdog starts launchers of hasten-torch instead, because the watchdog needs torch.
#pragma once

#include <chrono>

#include "test_report.h"

namespace hasten::cli {

// The time that a rank waits for a rank that hangs.
inline constexpr std::chrono::seconds kHangTimeout{1};

// `limit` is the time in seconds that each check may take.
void check_machine(double limit, TestReport& report);

}  // namespace hasten::cli
