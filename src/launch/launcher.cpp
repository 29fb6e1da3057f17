#include "hasten/launch/launcher.h"

#include <cstdlib>
#include <memory>

#include "base/file_limit.h"
#include "base/process_state.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "launch/attempt.h"
#include "launch/console.h"
#include "launch/duplicate_launcher.h"
#include "launch/job.h"
#include "launch/one_machine.h"
#include "launch/orphan_collector.h"
#include "launch/several_machines.h"

namespace hasten {
namespace {

std::unique_ptr<JobController> make_controller(const LaunchConfiguration& run, Console& console,
                                               Signals& signals) {
  if (run.machines.has_several()) return std::make_unique<SeveralMachines>(run, console, signals);
  return std::make_unique<OneMachine>(run, console);
}

// A job that succeeded waits until its output is read. A job that failed or was stopped waits only
// a few seconds.
int code_after_output(const JobEnd& end, Console& console, Signals& signals) {
  if (!end.reason.empty()) console.print_message(end.reason);
  const auto policy = end.code == 0 ? FinishPolicy::until_read : FinishPolicy::brief;
  const auto signal = console.finish(signals, policy);
  return signal && end.code == 0 ? 128 + *signal : end.code;
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
  Guardian guardian(processes);  // before there are threads
  Console console;
  const auto controller = make_controller(run, console, signals);
  while (true) {
    const RoundOrEnd next = controller->next();
    if (const JobEnd* const end = std::get_if<JobEnd>(&next))
      return code_after_output(*end, console, signals);
    run_round(run, std::get<Round>(next),
              {processes, guardian, *controller, signals, console, orphans});
  }
}

}  // namespace hasten
