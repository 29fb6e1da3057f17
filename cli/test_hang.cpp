// `hasten-torch test-hang`: one of two ranks. Rank 1 never reaches a collective, and `hasten test`
// checks that the watchdog reports it.
#include <unistd.h>

#include "hasten/process/group.h"
#include "test_machine.h"
#include "test_probes.h"
#include "torch_commands.h"

namespace hasten::cli {

int test_hang(int, char**) {
  const Worker worker = this_worker();
  const Group group = Group::form(worker, {.timeout = kHangTimeout});
  group.barrier();
  print_probe_line(worker);
  while (worker.rank == 1) pause();
  group.barrier();
  return 0;
}

}  // namespace hasten::cli
