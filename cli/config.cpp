// `hasten config`: writes the file that `hasten launch` reads, from questions or from defaults, or
// updates it.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iostream>

#include "accelerate_file/questions.h"
#include "commands/config_options.h"
#include "core_commands.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "machine/installed_gpus.h"
#include "options/help.h"
#include "options/sources.h"
#include "tpu/machine/installed_tpus.h"

namespace hasten::cli {
namespace {

namespace fs = std::filesystem;

bool is_json(const std::string& path) { return ends_with(path, ".json"); }

config::Prompter prompter() {
  return {.print = [](const std::string& text) { std::cout << text << std::flush; },
          .read_line = []() -> std::optional<std::string> {
            std::string line;
            if (!std::getline(std::cin, line)) return std::nullopt;
            return line;
          }};
}

void keep_as_backup(const std::string& path, const std::string& text) {
  write_file_atomically(path + ".bak", text);
  std::cout << "The previous file is kept as " << path << ".bak\n";
}

void print_unknown_keys(const config::LaunchFile& file) {
  const auto own = config::keys_unknown_to_accelerate(file);
  if (!own.empty())
    std::cout << "Accelerate does not know " << join(own, ", ") << " and rejects this file\n";
}

int ask(const ConfigCommand& run) {
  const config::Prompter with_user = prompter();
  const std::size_t gpus = config::installed_gpus().size(), tpus = config::installed_tpus().size();
  const config::LaunchFile file =
      config::ask_launch_file(config::launch_file_for(gpus, tpus), gpus, tpus, with_user);
  const std::string text = config::launch_file_text(file, is_json(run.path));
  std::cout << "\n" << text << "\n";
  print_unknown_keys(file);
  if (fs::exists(run.path) && !run.options.overwrite) {
    const std::string before = read_file(run.path);
    const bool over = config::ask_yes_no(
        run.path + " exists. Replace it and keep the previous file as " + run.path + ".bak?",
        /*default_value=*/true, with_user);
    if (!over) {
      std::cout << "Nothing was written\n";
      return 0;
    }
    keep_as_backup(run.path, before);
  }
  config::write_launch_file(run.path, text);
  std::cout << "Written to " << run.path << "\n";
  return 0;
}

int write_default(const ConfigCommand& run) {
  if (fs::exists(run.path) && !run.options.overwrite) {
    throw IoError("io.exists",
                  {.what = run.path + " exists",
                   .hint = "--overwrite replaces it, --config_file FILE writes another file"});
  }
  config::LaunchFile file =
      config::launch_file_for(config::installed_gpus().size(), config::installed_tpus().size());
  file.mixed_precision = run.options.mixed_precision;
  config::write_launch_file(run.path, config::launch_file_text(file, is_json(run.path)));
  std::cout << "Written to " << run.path << "\n";
  return 0;
}

int update(const ConfigCommand& run) {
  const std::string before = config::read_configuration(run.path);
  const config::UpdatedFile now = config::updated_launch_file(before, run.path);
  for (const std::string& change : now.changes) std::cout << change << "\n";
  if (now.changes.empty()) {
    std::cout << run.path << " is up to date\n";
    return 0;
  }
  keep_as_backup(run.path, before);
  config::write_launch_file(run.path, now.text);
  std::cout << "Written to " << run.path << "\n";
  return 0;
}

}  // namespace

int configure(int argc, char** argv) {
  const ConfigCommand run = parse_config({argv + 2, argv + argc}, config::whole_environment());
  if (run.help) {
    std::fputs(config_help(config::terminal_width()).c_str(), stdout);
    return 0;
  }
  switch (run.action) {
    case ConfigAction::ask:
      return ask(run);
    case ConfigAction::write_default:
      return write_default(run);
    case ConfigAction::update:
      return update(run);
  }
  return 1;
}

}  // namespace hasten::cli
