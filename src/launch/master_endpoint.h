// File: launch/master_endpoint.h (internal)
// Finds the address and the port at which the processes of one job meet, and the number of the job.
// It uses only values that are the same in all processes. Throws ConfigError "launch.environment".
#pragma once

#include "hasten/launch/worker.h"
#include "launch/variables.h"

namespace hasten {

// Returns the job's number or name for messages: from torchrun, else from the scheduler, else from
// Open MPI. It may be empty.
std::string find_job_name(const Worker& worker, const Variables& variables);

// Sets the address, the port, their origins and store_is_served, for a world of more than one.
void set_master_endpoint(Worker& worker, const Variables& variables);

}  // namespace hasten
