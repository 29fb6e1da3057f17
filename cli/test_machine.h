// File: cli/test_machine.h
// The checks of `hasten test` that are this machine's own: what the launcher promises of processes
// that die, and who is let into a job. Each starts launchers of tiny processes; none needs torch.
#pragma once

#include "test_report.h"

namespace hasten::cli {

// `limit`: seconds for each check.
void check_machine(double limit, TestReport& report);

}  // namespace hasten::cli
