// `hasten launch`: a program, several times.
#include "hasten/launch/launcher.h"

#include <cstdio>

#include "processes.h"

namespace hasten::cli {

int launch(int argc, char** argv) {
  const LaunchConfiguration run = parse_launch(argc - 2, argv + 2, config::process_environment());
  if (run.help) {
    std::fputs(launch_help(config::terminal_width()).c_str(), stdout);
    return 0;
  }
  for (const std::string& notice : run.notices)
    std::fprintf(stderr, "hasten launch: note: %s\n", notice.c_str());
  if (run.options.dry_run) {
    std::fputs(launch_text(run).c_str(), stdout);
    return 0;
  }
  return hasten::launch(run);
}

}  // namespace hasten::cli
