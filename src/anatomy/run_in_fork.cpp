#include "anatomy/run_in_fork.h"

#include <ATen/Parallel.h>

#include "hasten/base/files.h"
#include "process/fork/fork_safety.h"
#include "process/fork/forked_rank.h"

namespace hasten::anatomy {

std::string run_in_fork(const std::function<std::string()>& function) {
  const TemporaryDirectory scratch("hasten-run-in-fork");
  const auto file = scratch.path() / "text";
  pause_openmp();
  ForkedRank process([&] { write_file_atomically(file, function()); }, {}, at::get_num_threads());
  process.wait_for_end();
  if (process.failed()) throw process.error(0);
  return read_file(file);
}

}  // namespace hasten::anatomy
