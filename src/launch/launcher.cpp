#include "hasten/launch/launcher.h"

#include <cstdlib>
#include <memory>

#include "base/file_limit.h"
#include "base/process_state.h"
#include "base/standard_streams.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "launch/attempt.h"
#include "launch/console.h"
#include "launch/duplicate_launcher.h"
#include "launch/job.h"
#include "launch/multi_machine_controller.h"
#include "launch/orphan_collector.h"
#include "launch/single_machine_controller.h"

namespace hasten {
namespace {

std::unique_ptr<JobController> make_controller(const LaunchConfiguration& run, Console& console,
                                               Signals& signals) {
  if (run.machines.has_several())
    return std::make_unique<MultiMachineController>(run, console, signals);
  return std::make_unique<SingleMachineController>(run, console);
}

// A job that succeeded waits until its output is read. A job that failed or was stopped waits only
// a few seconds.
int code_after_output(const JobResult& result, Console& console, Signals& signals) {
  if (!result.reason.empty()) console.print_message(result.reason);
  const auto policy = result.code == 0 ? FinishPolicy::until_read : FinishPolicy::brief;
  const auto signal = console.finish(signals, policy);
  return signal && result.code == 0 ? 128 + *signal : result.code;
}

// Runs the ranks of a round. If they cannot be started, reports the reason to the other machines.
void run_round(const LaunchConfiguration& run, const Round& round, const AttemptContext& context) {
  try {
    Attempt(run, round, context).run();
  } catch (const Error& error) {
    context.controller.report_failure(error.exit_code(), str(host_name(), ": ", error.what()));
    throw;
  }
}

}  // namespace

int launch(const LaunchConfiguration& run) {
  check_not_duplicate_launcher(run, config::whole_environment());
  check_rank_commands(run);  // throws before anything is started
  raise_file_limit();        // each rank needs two connections
  const std::string job = new_inner_job_name(std::getenv(kJobVariable));
  open_closed_streams();
  Signals signals;
  const OrphanCollector orphans;  // before there are children
  JobProcesses processes{.job = job, .descendants = orphans.has_only_own_children()};
  CleanupProcess cleanup_process(processes);  // before there are threads
  Console console;
  const auto controller = make_controller(run, console, signals);
  while (true) {
    const RoundOrResult next = controller->next();
    if (const JobResult* const result = std::get_if<JobResult>(&next))
      return code_after_output(*result, console, signals);
    run_round(run, std::get<Round>(next),
              {processes, cleanup_process, *controller, signals, console, orphans});
  }
}

}  // namespace hasten
