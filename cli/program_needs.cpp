#include "program_needs.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include "base/child_process.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"

namespace hasten::cli {
namespace {

// Replaces this process; its output goes to the file.
void exec_quietly(const std::vector<std::string>& words, const std::filesystem::path& output) {
  const int file = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  dup2(file, STDOUT_FILENO);
  dup2(file, STDERR_FILENO);
  std::vector<char*> arguments;
  for (const std::string& each : words) arguments.push_back(const_cast<char*>(each.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
}

std::vector<std::string> flags_of(const PlanSettings& settings, std::int64_t rows,
                                  std::int64_t accumulation) {
  std::vector<std::string> flags = {str("--per_device_train_batch_size=", rows),
                                    str("--gradient_accumulation_steps=", accumulation)};
  for (const auto& [name, value] : settings) flags.push_back(str("--", name, "=", value));
  return flags;
}

// The last lines that the program has printed.
std::string end_of(const std::filesystem::path& file) {
  const std::string text = std::filesystem::exists(file) ? read_file(file) : "";
  return std::string(trim(text.substr(text.size() - std::min<std::size_t>(text.size(), 300))));
}

}  // namespace

StepPredictor program_predictor(const std::string& hasten, const std::vector<std::string>& program,
                                const std::string& device) {
  return [=](const PlanSettings& settings, std::int64_t rows, std::int64_t accumulation) {
    const TemporaryDirectory folder("hasten-plan");
    const auto report = folder.path() / "report.json", output = folder.path() / "output";
    std::vector<std::string> words = {hasten, "estimate", "--steps",       "2", "--device",
                                      device, "--output", report.string(), "--"};
    words.insert(words.end(), program.begin(), program.end());
    for (std::string& flag : flags_of(settings, rows, accumulation))
      words.push_back(std::move(flag));
    ChildProcess child({}, [&] { exec_quietly(words, output); });
    (void)child.reap();
    if (std::filesystem::exists(report)) return read_step_needs(read_file(report));
    throw IoError("plan.program",
                  {.what = program.front(),
                   .got = end_of(output),
                   .expected = "an optimizer step with an Accelerator or a Trainer",
                   .hint = "a plan adds --per_device_train_batch_size and other options of hasten "
                           "train to the program's arguments, which it has to read"});
  };
}

}  // namespace hasten::cli
