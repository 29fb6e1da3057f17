// Two ranks, the second of which never comes to a collective: whether the watchdog tells so.
#include <unistd.h>

#include "commands.h"
#include "hasten/process/group.h"
#include "test_machine.h"
#include "test_parts.h"

namespace hasten::cli {

int test_hang(int, char**) {
  const Worker worker = worker_of(config::whole_environment());
  const Group group = Group::form(worker, {.timeout = kLimitOfHang});
  group.barrier();
  tell_part(worker);
  while (worker.rank == 1) pause();
  group.barrier();
  return 0;
}

}  // namespace hasten::cli
