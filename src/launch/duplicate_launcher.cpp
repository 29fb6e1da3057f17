#include "launch/duplicate_launcher.h"

#include <algorithm>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/launch/worker.h"

namespace hasten {
namespace {

// True if the user has said how many machines there are. A 1 in a configuration file does not
// count, because Accelerate writes num_machines: 1 into each file.
bool number_of_machines_is_given(const LaunchConfiguration& run) {
  if (run.machines.has_several() || run.options.standalone) return true;
  return std::any_of(run.values.begin(), run.values.end(), [](const config::ResolvedValue& value) {
    using Source = config::Origin::Source;
    const bool counts = value.name == "num_machines" || value.name == "nnodes";
    return counts &&
           (value.origin.source == Source::flag || value.origin.source == Source::environment);
  });
}

Worker worker_in(config::Environment environment) {
  // The address at which the processes meet does not matter here.
  environment["MASTER_ADDR"] = "127.0.0.1";
  environment["MASTER_PORT"] = "29500";
  try {
    return worker_of(environment);
  } catch (const ConfigError&) {
    return {};  // contradictory variables prove nothing
  }
}

std::string hint_for(LauncherKind by) {
  switch (by) {
    case LauncherKind::slurm:
      return "start one launcher per machine with --machine_rank (hasten launch --slurm writes the "
             "script), or run srun PROGRAM without hasten launch";
    case LauncherKind::kubernetes:
      return "pass --num_machines with --machine_rank or --rdzv_endpoint, or run the program "
             "without hasten launch";
    default:
      return "run mpirun PROGRAM without hasten launch, or start one launcher per machine with "
             "--num_machines";
  }
}

}  // namespace

void check_not_duplicate_launcher(const LaunchConfiguration& run, config::Environment environment) {
  if (number_of_machines_is_given(run)) return;
  const Worker worker = worker_in(std::move(environment));
  switch (worker.started_by) {
    case LauncherKind::none:
    case LauncherKind::hasten:
    case LauncherKind::torchrun:  // a rank may launch a job of its own
      return;
    default:
      break;
  }
  if (worker.world_size < 2) return;
  throw ConfigError("launch.one-of-many",
                    {.what = str("this launcher is process ", worker.rank, " of ",
                                 worker.world_size, " started by ", name_of(worker.started_by),
                                 ", and each of them would start its own job"),
                     .expected = "one launcher, or one per machine with num_machines",
                     .hint = hint_for(worker.started_by)});
}

}  // namespace hasten
