// `hasten tpu-config`: runs commands on all machines of a TPU pod, through gcloud.
#include "tpu/commands/tpu_config_options.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "cannot_run.h"
#include "core_commands.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/launch/slurm_script.h"
#include "launch/exec_arguments.h"
#include "launch/programs.h"
#include "options/help.h"

namespace hasten::cli {
namespace {

std::string find_gcloud() {
  try {
    return find_program("gcloud");
  } catch (const IoError& error) {
    ErrorText text = error.text();
    text.hint =
        "install Google Cloud's CLI (https://cloud.google.com/sdk/docs/install), or use --dry_run "
        "and run the printed line on a machine that has it";
    throw IoError(error.code(), text);
  }
}

}  // namespace

int tpu_config(int argc, char** argv) {
  const TpuConfigCommand run =
      parse_tpu_config({argv + 2, argv + argc}, config::whole_environment());
  if (run.help) {
    std::fputs(tpu_config_help(config::terminal_width()).c_str(), stdout);
    return 0;
  }
  const std::vector<std::string> command = gcloud_command(run);
  if (run.options.dry_run) {
    std::vector<std::string> quoted;
    for (const std::string& argument : command) quoted.push_back(shell_word(argument));
    std::fputs((join(quoted, " ") + "\n").c_str(), stdout);
    return 0;
  }
  const std::string program = find_gcloud();
  std::fflush(nullptr);
  execv(program.c_str(), exec_arguments(command).data());
  throw_cannot_run(program, errno);
}

}  // namespace hasten::cli
