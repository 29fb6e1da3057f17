// File: launch/master_endpoint.h (internal)
// Finds where the processes of one job meet: an address, a port and the job's number, from what is
// the same in all of them. Throws ConfigError "launch.environment".
#pragma once

#include "hasten/launch/worker.h"
#include "launch/variables.h"

namespace hasten {

// Returns the job's number or name for people: torchrun's, else the scheduler's, else Open MPI's;
// may be empty.
std::string find_job_name(const Worker& worker, const Variables& variables);

// Sets the address, the port, their origins and store_is_served, for a world of more than one.
void set_master_endpoint(Worker& worker, const Variables& variables);

}  // namespace hasten
