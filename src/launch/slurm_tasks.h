// File: launch/slurm_tasks.h (internal)
// Reads Slurm's variables: the job, and the tasks of a step (one run of srun). Throws ConfigError
// "launch.environment".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/internal_api.h"
#include "launch/variables.h"

namespace hasten {

// Returns the job's number, which stays the same when Slurm starts the job again, or an empty text
// outside Slurm. A task of an array is ARRAY_TASK.
HASTEN_INTERNAL_API std::string slurm_job_name(const Variables& variables);

// Returns the name that the user gives to the job, and slurm_job_name() if it is empty.
std::string user_or_slurm_job_name(const std::string& user, const Variables& variables);

// Returns how many times Slurm has started this job again, at most 2^20; 0 outside Slurm.
HASTEN_INTERNAL_API int slurm_restarts(const Variables& variables);

// True if this process is a task of a step. An sbatch script has SLURM_NTASKS and SLURM_PROCID too,
// although it is only one process. A script that is submitted from inside a step even has the
// variables of that step, but a different SLURM_NTASKS.
bool is_slurm_task(const Variables& variables);

// Returns the number of tasks of machine `at` in a list such as "2(x3),1", which means three
// machines with two tasks, then one machine with one task.
std::int64_t tasks_of_machine(std::string_view list, std::int64_t at);

}  // namespace hasten
