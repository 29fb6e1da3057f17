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

// Returns why the program made no step: the message of an exception that ended it, or else its last
// output.
std::string reason_in(const std::filesystem::path& output) {
  constexpr std::size_t kMaxOutputBytes = 600;
  constexpr std::string_view kMessage = "what():";
  const std::string text = std::filesystem::exists(output) ? read_file(output) : "";
  const std::size_t message = text.rfind(kMessage);
  if (message != std::string::npos) {
    const std::string rest = text.substr(message + kMessage.size());
    return std::string(trim(rest.substr(0, rest.find('\n'))));
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
    (void)child.reap();
    if (!std::filesystem::exists(report))
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
