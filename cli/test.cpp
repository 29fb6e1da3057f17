// `hasten test`: checks whether this machine, with its configuration, is ready for several
// processes.
#include <cstdio>
#include <string>

#include "commands/test_options.h"
#include "core_commands.h"
#include "exec_torch.h"
#include "hasten/base/error.h"
#include "hasten/launch/launcher.h"
#include "options/help.h"
#include "own_program.h"
#include "test_machine.h"
#include "test_probes.h"
#include "test_ranks.h"
#include "test_report.h"

namespace hasten::cli {
namespace {

// Says what is started, since the first result may take a while.
std::string announcement(const TestCommand& run) {
  const std::int64_t here = processes_on_this_machine(run.launch);
  const std::string processes = str(here, here == 1 ? " process" : " processes");
  const Machines& machines = run.launch.machines;
  const std::string where = machines.has_several() ? str(" on this machine (others connect at ",
                                                         machines.host, ":", machines.port, ")")
                                                   : " on this machine";
  return str("hasten test: ", processes, where, ", started by hasten launch; at most ",
             significant(run.options.timeout, 6), " s per check");
}

// The checks of a single rank prove nothing about several.
std::string purpose(const LaunchConfiguration& run) {
  const bool alone = processes_on_this_machine(run) == 1 && !run.machines.has_several();
  return alone ? "training in one process" : "distributed training";
}

RankCheckOptions ranks_of(const TestCommand& run) {
  RankCheckOptions ranks{.limit = run.options.timeout,
                         .several_machines = run.launch.machines.has_several(),
                         .main_rank_is_remote = run.launch.machines.rank > 0};
  ranks.command = {own_program(), "launch"};
  ranks.command.insert(ranks.command.end(), run.launch_arguments.begin(),
                       run.launch_arguments.end());
  return ranks;
}

// The limit is also an argument of the ranks' program, and is known only after parsing.
TestCommand parse_command_line(int argc, char** argv) {
  const auto environment = config::whole_environment();
  TestCommand run =
      parse_test({argv + 2, argv + argc}, environment, {torch_program(), kTestRankCommand});
  run.launch_arguments.push_back(str(run.options.timeout));
  run.launch.program.push_back(run.launch_arguments.back());
  return run;
}

}  // namespace

int test(int argc, char** argv) {
  if (argc == 4 && argv[2] == std::string(kProbeFlag)) return run_probe(argv[3]);
  const TestCommand run = parse_command_line(argc, argv);
  if (run.help) {
    std::fputs(test_help(config::terminal_width()).c_str(), stdout);
    return 0;
  }
  if (run.launch.options.dry_run) {
    std::fputs(launch_text(run.launch).c_str(), stdout);
    return 0;
  }
  TestReport report(run.options.json);
  report.print_line(announcement(run));
  check_ranks(ranks_of(run), report);
  check_machine(run.options.timeout, report);
  return report.end(purpose(run.launch));
}

}  // namespace hasten::cli
