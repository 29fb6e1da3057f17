// File: launch/slurm_tasks.h (internal)
// Reads the tasks of a Slurm step (one run of srun) from its variables. Throws ConfigError
// "launch.environment".
#pragma once

#include <cstdint>
#include <string_view>

#include "launch/variables.h"

namespace hasten {

// True if this process is a task of a step. An sbatch script has SLURM_NTASKS and SLURM_PROCID too,
// although it is only one process. A script that is submitted from inside a step even has the
// variables of that step, but a different SLURM_NTASKS.
bool is_slurm_task(const Variables& variables);

// Returns the number of tasks of machine `at` in a list such as "2(x3),1", which means three
// machines with two tasks, then one machine with one task.
std::int64_t tasks_of_machine(std::string_view list, std::int64_t at);

}  // namespace hasten
