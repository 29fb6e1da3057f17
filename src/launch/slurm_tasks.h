// File: launch/slurm_tasks.h (internal)
// What a step of Slurm's, a run of srun, says of its tasks. Throws ConfigError
// "launch.environment".
#pragma once

#include <cstdint>
#include <string_view>

#include "launch/variables.h"

namespace hasten {

// Whether this process is a task of a step. In a script of sbatch's SLURM_NTASKS and SLURM_PROCID
// are set too, while one process runs; a script submitted from inside a step has even that step's
// variables, but with another SLURM_NTASKS.
bool is_slurm_task(const Variables& variables);

// Tasks of the machine `at` in a list such as "2(x3),1": three machines with two, then one with
// one.
std::int64_t tasks_of_machine(std::string_view list, std::int64_t at);

}  // namespace hasten
