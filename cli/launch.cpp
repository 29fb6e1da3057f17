// `hasten launch`: starts a program several times.
#include "hasten/launch/launcher.h"
#include "options/help.h"

#include <cstdio>
#include <filesystem>
#include <string>

#include "core_commands.h"
#include "hasten/launch/slurm_script.h"

namespace hasten::cli {
namespace {

// Returns the command as it was called. A name is looked up on each machine; a path must be valid
// on each of them.
std::string own_command(const char* called) {
  const std::string command = called;
  return command.find('/') == std::string::npos ? "hasten"
                                                : std::filesystem::absolute(command).string();
}

}  // namespace

int launch(int argc, char** argv) {
  const LaunchConfiguration run =
      parse_launch({argv + 2, argv + argc}, config::whole_environment());
  if (run.help) {
    std::fputs(launch_help(config::terminal_width()).c_str(), stdout);
    return 0;
  }
  for (const std::string& notice : run.notices)
    std::fprintf(stderr, "hasten launch: note: %s\n", notice.c_str());
  if (run.options.slurm) {
    std::fputs(to_text(slurm_script(run, own_command(argv[0]))).c_str(), stdout);
    return 0;
  }
  if (run.options.dry_run) {
    std::fputs(launch_text(run).c_str(), stdout);
    return 0;
  }
  return hasten::launch(run);
}

}  // namespace hasten::cli
