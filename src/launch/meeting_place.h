// File: launch/meeting_place.h (internal)
// Finds where the processes of one job meet: the address, the port and the job's number. All come
// from variables that are the same in every process. Throws ConfigError "launch.environment".
#pragma once

#include "hasten/launch/worker.h"
#include "launch/variables.h"

namespace hasten {

// Returns the number or name by which people know the job: torchrun's run ID, else the scheduler's
// number, else Open MPI's. Empty if there is none.
std::string job_of(const Worker& worker, const Variables& variables);

// Sets the worker's address and port, where each of them comes from, and store_is_served. For a
// world of more than one process.
void settle_meeting_place(Worker& worker, const Variables& variables);

}  // namespace hasten
