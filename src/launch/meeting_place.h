// File: launch/meeting_place.h (internal)
// Where the processes of one job meet: an address, a port and the job's number, from what is the
// same in all of them.
#pragma once

#include "hasten/launch/worker.h"
#include "launch/variables.h"

namespace hasten {

// The number or name of the job that people know: the scheduler's, else the launcher's; may be
// empty.
std::string job_of(const Worker& worker, const Variables& variables);

// Fills in the four fields of address and port, for a world of more than one.
void settle_meeting_place(Worker& worker, const Variables& variables);

}  // namespace hasten
