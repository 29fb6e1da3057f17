// File: cli/test_machine.h
// The checks of `hasten test` that are this machine's own: what the launcher promises of processes
// that die or hang, and who is let into a job. Each starts launchers of tiny processes; those that
// hang are of the part that has torch.
#pragma once

#include <chrono>

#include "test_report.h"

namespace hasten::cli {

// How long a rank waits for one that hangs.
inline constexpr std::chrono::seconds kLimitOfHang{1};

// `limit`: seconds for each check.
void check_machine(double limit, TestReport& report);

}  // namespace hasten::cli
