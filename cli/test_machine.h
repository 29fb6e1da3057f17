// File: cli/test_machine.h
// The checks of `hasten test` for this machine alone: what the launcher promises for processes that
// die or hang, and which processes are let into a job. They start launchers of tiny processes, and
// of hasten-torch for the watchdog, which needs torch.
#pragma once

#include <chrono>

#include "test_report.h"

namespace hasten::cli {

// The time that a rank waits for one that hangs.
inline constexpr std::chrono::seconds kHangTimeout{1};

// `limit` is the time in seconds that each check may take.
void check_machine(double limit, TestReport& report);

}  // namespace hasten::cli
