#include "launch/single_machine_controller.h"

#include "hasten/base/text.h"
#include "launch/job.h"
#include "launch/shortage_report.h"
#include "launch/slurm_tasks.h"
#include "rendezvous/secure_context.h"

namespace hasten {

SingleMachineController::SingleMachineController(const LaunchConfiguration& run, Console& console)
    : run_(run),
      console_(console),
      run_id_(user_or_slurm_job_name(run.options.rdzv_id, Variables(config::whole_environment()))),
      earlier_restarts_(slurm_restarts(Variables(config::whole_environment()))),
      token_(run.token.empty() ? rendezvous::new_token() : run.token),
      server_({.loopback_only = true,
               .port = 0,
               .token = token_,
               .on_shortage = run.options.quiet ? nullptr : shortage_report(console)}) {
  // Reserves the port now, so that a port in use is reported before anything is started.
  if (run.machines.port != 0) port_.emplace(/*loopback_only=*/true, run.machines.port);
}

RoundOrResult SingleMachineController::next() {
  if (leave_signal_ != 0) return JobResult{.code = 128 + leave_signal_};
  const bool again = attempt_ > 0;
  if (again && (failed_code_ == 0 || attempt_ > run_.options.max_restarts))
    return JobResult{.code = failed_code_};
  if (again && !run_.options.quiet) {
    console_.print_message(str("restarting all processes (restart ", attempt_, " of ",
                               run_.options.max_restarts, ")"));
  }
  failed_code_ = 0;
  server_.clear();
  // Holds the last port while it reserves the next one, so that each attempt has a different port.
  if (run_.machines.port == 0) port_ = rendezvous::ReservedPort(/*loopback_only=*/true);
  const std::int64_t count = processes_on_this_machine(run_);
  return Round{.attempt = earlier_restarts_ + attempt_++,
               .world_size = count,
               .processes = count,
               .master_addr = "127.0.0.1",
               .master_port = port_->number(),
               .store = to_text(Endpoint{.host = "127.0.0.1", .port = server_.port()}),
               .token = token_,
               .run_id = run_id_};
}

void SingleMachineController::report_failure(int code, const std::string&) { failed_code_ = code; }
void SingleMachineController::report_leaving(int signal) { leave_signal_ = signal; }

}  // namespace hasten
