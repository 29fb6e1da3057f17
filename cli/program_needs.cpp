#include "program_needs.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/child_process.h"
#include "commands/observe_options.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "launch/exec_arguments.h"
#include "plan/techniques.h"

namespace hasten::cli {
namespace {

using Json = nlohmann::ordered_json;

// Replaces this process with the program. The output of the program goes to the file.
void exec_quietly(const std::vector<std::string>& command, const std::filesystem::path& output) {
  const int file = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  dup2(file, STDOUT_FILENO);
  dup2(file, STDERR_FILENO);
  execvp(command[0].c_str(), exec_arguments(command).data());
}

// Returns the message of an exception from a line of output: of one that nothing has caught, or of
// one that hasten::run_main() has printed. Empty if the line has none.
std::string message_in(const std::string& line) {
  constexpr std::string_view kMessage = "what():", kError = "error";
  if (const std::size_t at = line.find(kMessage); at != std::string::npos)
    return std::string(trim(line.substr(at + kMessage.size())));
  const std::size_t end = line.find(": ");
  const bool is_error = starts_with(line, kError) && end != std::string::npos &&
                        (end == kError.size() || line[end - 1] == ']');
  return is_error ? std::string(trim(line.substr(end + 2))) : "";
}

// Returns why the program made no step: the message of an exception that ended it, or else its last
// output.
std::string reason_in(const std::filesystem::path& output) {
  constexpr std::size_t kMaxOutputBytes = 600;
  const std::string text = std::filesystem::exists(output) ? read_file(output) : "";
  const std::vector<std::string> lines = split(text, '\n');
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    if (std::string message = message_in(*line); !message.empty()) return message;
  }
  const std::string end(trim(text.substr(text.size() - std::min(text.size(), kMaxOutputBytes))));
  return end.empty() ? "a program that ended without a step" : end;
}

[[noreturn]] void throw_no_step(const std::string& program, const std::string& got) {
  throw UsageError("plan.program",
                   {.what = program,
                    .got = got,
                    .expected = "optimizer steps of a hasten::Trainer, whose TrainingArguments a "
                                "plan changes",
                    .hint = "`hasten estimate -- PROGRAM` predicts a step of any Accelerator"});
}

// Makes dry runs of a program, each with its own folder.
class ProgramRuns {
 public:
  ProgramRuns(const std::string& hasten, const std::vector<std::string>& program,
              const std::string& device)
      : hasten_(hasten), program_(program), device_(device) {}

  struct Run {
    StepCost cost;
    TrainingArguments arguments;  // before the plan's settings are applied
    std::int64_t resident = 0;
  };
  // `settings` is a JSON object. Throws UsageError with the reason if the program makes no step.
  Run run(const std::string& settings) const {
    const TemporaryDirectory folder("hasten-plan");
    const auto report = folder.path() / "report.json", output = folder.path() / "output",
               program = folder.path() / kPlanProgram;
    write_file_atomically(folder.path() / kPlanSettings, settings);
    std::vector<std::string> command = {hasten_, "estimate", "--steps",       "2", "--device",
                                        device_, "--output", report.string(), "--"};
    command.insert(command.end(), program_.begin(), program_.end());
    ChildProcess child({}, [&] {
      setenv(kPlanFolderVariable, folder.path().c_str(), 1);
      exec_quietly(command, output);
    });
    // A program that handles its error ends like one that has made its steps, and has a report.
    const bool failed = child.reap().value_or(0) != 0;
    if (failed || !std::filesystem::exists(report))
      throw UsageError("plan.program", {.what = reason_in(output)});
    if (!std::filesystem::exists(program))
      throw UsageError("plan.program", {.what = "steps of an Accelerator, without a Trainer"});
    const Json facts = Json::parse(read_file(program));
    return {.cost = read_step_cost(read_file(report)),
            .arguments = training_arguments_from_json(facts.at("arguments").dump()),
            .resident = facts.at("resident")};
  }

 private:
  std::string hasten_;
  std::vector<std::string> program_;
  std::string device_;
};

}  // namespace

PlannedProgram inspect_program(const std::string& hasten, const std::vector<std::string>& program,
                               const std::string& device) {
  const ProgramRuns runs(hasten, program, device);
  const ProgramRuns::Run requested = [&] {
    try {
      return runs.run("{}");
    } catch (const UsageError& error) {
      throw_no_step(program.front(), error.what());
    }
  }();
  if (requested.arguments.use_cpu && device != "cpu")
    throw_no_step(program.front(), "a Trainer with use_cpu, although --device names a GPU");
  return {.arguments = requested.arguments,
          .resident = requested.resident,
          .predictor = [runs](PlanSettings settings, std::int64_t rows, std::int64_t accumulation) {
            settings.emplace_back("per_device_train_batch_size", str(rows));
            settings.emplace_back("gradient_accumulation_steps", str(accumulation));
            return runs.run(argument_changes(settings)).cost;
          }};
}

}  // namespace hasten::cli
