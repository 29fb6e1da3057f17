#include "commands/test_options.h"

#include "commands/resolve.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "machine/installed_gpus.h"
#include "options/help.h"
#include "options/value.h"

namespace hasten {
namespace {

void describe_test(config::OptionTable& table, TestOptions& options) {
  config::Describer d(table, options);
  d("timeout", &TestOptions::timeout, "Limit each check to this many seconds.")
      .above(0)
      .at_most(1e6);
  d("json", &TestOptions::json,
    "Print the results as JSON on standard output, and the lines on standard error.");
}

// Reads the arguments with one table that has the options of both commands. The options of `own`
// come first.
LaunchCommandLine read_test_command_line(const config::OptionTable& own,
                                         const std::vector<std::string>& arguments) {
  LaunchOptions described;
  config::OptionTable both = own;
  describe(both, described);
  LaunchCommandLine line = read_launch_command_line(both, arguments);
  if (line.help || line.program.empty()) return line;
  throw ConfigError("config.unexpected-argument",
                    {.what = "unexpected argument '" + line.program.front() + "'",
                     .expected = "only options, because hasten test has its own program",
                     .hint = "start your program with hasten launch"});
}

// Writes flags as arguments of a command line.
std::vector<std::string> to_arguments(const std::vector<config::Assignment>& flags) {
  std::vector<std::string> arguments;
  for (const config::Assignment& flag : flags)
    arguments.push_back("--" + flag.key + "=" + config::to_argument(flag.value));
  return arguments;
}

bool sets_process_count(const LaunchConfiguration& run) {
  const LaunchOptions& options = run.options;
  return options.num_processes || options.nproc_per_node || options.gpu_ids != "all" ||
         options.tpu || run.machines.has_several() ||
         (!options.use_cpu && config::visible_gpus().size() > 1);
}

// Called only if no option sets the number of processes, so nothing contradicts this number.
void set_process_count(LaunchConfiguration& run, std::int64_t count) {
  run.options.num_processes = count;
  for (config::ResolvedValue& value : run.values) {
    if (value.name != "num_processes") continue;
    value.value = count;
    value.origin = {config::Origin::Source::derived, "the command"};
  }
}

}  // namespace

TestCommand parse_test(const std::vector<std::string>& arguments,
                       const config::Environment& environment,
                       const std::vector<std::string>& program) {
  TestCommand run;
  config::OptionTable own;
  describe_test(own, run.options);
  const LaunchCommandLine line = read_test_command_line(own, arguments);
  run.help = line.help;
  if (run.help) return run;
  config::apply_flags(own, config::flags_of(own, line.flags));

  std::vector<config::Assignment> flags = line.flags;
  std::erase_if(flags, [&](const auto& flag) { return own.find(flag.key) != nullptr; });
  // A rank that ends too early is a result and must not be restarted.
  flags.push_back(config::as_flag("max_restarts", "0"));
  run.launch = resolve_launch(flags, program, environment);
  if (run.launch.options.slurm) {
    throw ConfigError("config.contradiction",
                      {.what = "--slurm prints a script and starts nothing to test",
                       .hint = "remove it, and run hasten test on each machine of a job"});
  }
  if (!sets_process_count(run.launch)) {
    set_process_count(run.launch, 2);
    flags.push_back(config::as_flag("num_processes", "2"));
  }
  run.launch_arguments = to_arguments(flags);
  run.launch_arguments.emplace_back("--");
  run.launch_arguments.insert(run.launch_arguments.end(), program.begin(), program.end());
  return run;
}

std::string test_help(int width) {
  TestOptions options;
  config::OptionTable table;
  describe_test(table, options);
  return "usage: hasten test [--NAME VALUE ...]\n\n"
         "Tests this machine, or several machines if it is started on each of them, with your\n"
         "configuration: starts processes through hasten launch, connects them and checks what\n"
         "training needs; then kills some of them to check how the launcher handles it.\n"
         "Prints one line per check. The exit code is 0 if all checks passed.\n\n" +
         config::help_text(table, width) +
         "\nAll options of hasten launch are accepted too: --config_file FILE, -n 4,\n"
         "--num_machines 2, ... (hasten launch --help). If no option sets the number of\n"
         "processes, one is started for each TPU chip or for each of several GPUs, otherwise "
         "two.\n";
}

}  // namespace hasten
