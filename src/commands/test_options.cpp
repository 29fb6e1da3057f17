#include "commands/test_options.h"

#include <algorithm>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "machine/installed_gpus.h"
#include "options/sources.h"

namespace hasten {
namespace {

void describe(config::OptionTable& table, TestOptions& options) {
  config::Describer d(table, options);
  d("json", &TestOptions::json, "Print the results as JSON.");
  d("timeout", &TestOptions::timeout, "Limit each check to this many seconds.")
      .above(0)
      .at_most(1e6);
}

std::string name_in(const std::string& word) {
  return starts_with(word, "--") ? word.substr(2, word.find('=') - 2) : "";
}

// Removes this command's words from `words`, which then holds those of launch, and returns them.
std::vector<std::string> extract_own_words(const config::OptionTable& table,
                                           std::vector<std::string>& words) {
  std::vector<std::string> own, others;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const config::Option* const option = table.find(name_in(word));
    (option != nullptr ? own : others).push_back(word);
    if (option == nullptr || word.find('=') != word.npos || i + 1 == words.size()) continue;
    const std::string& next = words[i + 1];
    if (config::takes_word(option, next)) own.push_back(words[++i]);
  }
  words = std::move(others);
  return own;
}

// Reports misspelt names of this command; launch, which reads the other words, does not know them.
void check_spelling(const config::OptionTable& table, const std::vector<std::string>& words) {
  LaunchOptions options;
  config::OptionTable launch;
  describe(launch, options);
  for (const std::string& word : words) {
    const std::string name = name_in(word);
    const auto near = nearest(name, table.names());
    if (!near || launch.find(name) != nullptr) continue;
    throw ConfigError("config.unknown-key", {.what = "unknown argument --" + name,
                                             .hint = "did you mean --" + *near + "?"});
  }
}

void read(TestOptions& options, std::vector<std::string>& words) {
  config::OptionTable table;
  describe(table, options);
  const std::vector<std::string> own = extract_own_words(table, words);
  check_spelling(table, words);
  std::vector<std::string> notices;
  config::resolve(table, {config::read_flags(table, own)}, notices);
  config::check_limits(table);
}

LaunchConfiguration parsed(std::vector<std::string> words, const config::Environment& environment,
                           const std::vector<std::string>& program) {
  words.emplace_back("--");
  words.insert(words.end(), program.begin(), program.end());
  LaunchConfiguration run = parse_launch(words, environment);
  if (!run.help && run.program != program) {
    throw ConfigError("config.unexpected-argument",
                      {.what = "unexpected argument '" + run.program.front() + "'",
                       .expected = "only options, because hasten test has its own program",
                       .hint = "start your program with hasten launch"});
  }
  return run;
}

bool sets_process_count(const LaunchConfiguration& run) {
  const LaunchOptions& options = run.options;
  return options.num_processes || options.nproc_per_node || options.gpu_ids != "all" ||
         options.tpu || run.machines.has_several() ||
         (!options.use_cpu && config::installed_gpus().size() > 1);
}

}  // namespace

TestCommand parse_test(const std::vector<std::string>& words,
                       const config::Environment& environment,
                       const std::vector<std::string>& program) {
  TestCommand run;
  std::vector<std::string> launch = words;
  read(run.options, launch);
  // A rank that ends too early is a result and must not be restarted.
  for (const char* const word : {"--max_restarts", "0"}) launch.emplace_back(word);
  run.launch = parsed(launch, environment, program);
  run.help = run.launch.help;
  if (run.help) return run;
  if (run.launch.options.slurm) {
    throw ConfigError("config.contradiction",
                      {.what = "--slurm prints a script and starts nothing to test",
                       .hint = "remove it, and run hasten test on each machine of a job"});
  }
  if (!sets_process_count(run.launch)) {
    for (const char* const word : {"--num_processes", "2"}) launch.emplace_back(word);
    run.launch = parsed(launch, environment, program);
  }
  run.words = std::move(launch);
  run.words.emplace_back("--");
  run.words.insert(run.words.end(), program.begin(), program.end());
  return run;
}

std::string test_help() {
  return "usage: hasten test [--NAME VALUE ...]\n\n"
         "Tests this machine, or several machines if it is started on each of them, with your\n"
         "configuration: starts processes through hasten launch, connects them and checks what\n"
         "training needs; then kills some of them to check how the launcher handles it.\n"
         "Prints one line per check. The exit code is 0 if all checks passed.\n\n"
         "  --timeout SECONDS   Limit each check to this time. [60]\n"
         "  --json              Print the results as JSON on standard output, and the lines on\n"
         "                      standard error.\n\n"
         "All options of hasten launch are accepted too: --config_file FILE, -n 4,\n"
         "--num_machines 2, ... (hasten launch --help). If no option sets the number of\n"
         "processes, one is started for each TPU chip or for each of several GPUs, otherwise "
         "two.\n";
}

}  // namespace hasten
