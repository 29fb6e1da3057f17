#include "hasten/launch/launcher.h"

#include <cstdio>
#include <memory>

#include "launch/attempt.h"
#include "launch/job.h"
#include "launch/one_machine.h"
#include "launch/one_of_many.h"
#include "launch/several_machines.h"

namespace hasten {
namespace {

std::unique_ptr<Membership> membership_of(const LaunchConfiguration& run) {
  if (run.machines.several()) return std::make_unique<SeveralMachines>(run);
  return std::make_unique<OneMachine>(run);
}

}  // namespace

int launch(const LaunchConfiguration& run) {
  check_not_one_of_many(run, config::whole_environment());
  check_rank_commands(run);  // refused before anything is started
  const std::string job = new_job();
  const Guardian guardian(job);  // before there are threads
  Signals signals;
  const auto membership = membership_of(run);
  while (true) {
    const Next next = membership->next(signals);
    if (const End* const end = std::get_if<End>(&next)) {
      if (!end->reason.empty()) std::fprintf(stderr, "hasten launch: %s\n", end->reason.c_str());
      return end->code;
    }
    Attempt(run, std::get<Round>(next), job, *membership, signals).run();
    kill_job(job);
  }
}

}  // namespace hasten
