#include "commands/plan_options.h"

#include <algorithm>

#include "commands/predicted_device.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/machine/gpus.h"
#include "options/help.h"
#include "options/size.h"
#include "options/sources.h"

namespace hasten {
namespace {

void describe_plan(config::OptionTable& table, PlanConfiguration& plan) {
  config::Describer d(table, plan);
  d("memory", &PlanConfiguration::memory,
    "Set the limit of memory, with a unit: 16GiB, 16GB. On the CPU it includes the program. If "
    "unset, it is the memory of the GPU that --device names, which is also the largest limit.");
  d("keep_effective_batch", &PlanConfiguration::keep_effective_batch,
    "Keep the rows of a step: batch times gradient_accumulation_steps. Otherwise a step may have "
    "fewer rows if that is faster.");
  d("exactness", &PlanConfiguration::exactness,
    "Consider techniques that are at least as exact: exact (the order of sums and the numbers of "
    "dropout change), rounding (numbers have fewer bits), or other (another algorithm).");
  d("use", &PlanConfiguration::use, "Use these techniques in any case.");
  d("avoid", &PlanConfiguration::avoid, "Do not use these techniques.");
  d("yaml", &PlanConfiguration::yaml,
    "Write the training arguments to this file, for `hasten train --config_file`.");
  d("techniques", &PlanConfiguration::techniques, "List the techniques.");
}

// The options of `hasten estimate` that a plan for a program accepts.
void describe_for_program(config::OptionTable& table, EstimateConfiguration& step) {
  config::Describer d(table, step);
  d("device", &EstimateConfiguration::device,
    "Plan for cpu, or for a GPU that need not be installed: cuda:v100-16gb ...");
  d("devices", &EstimateConfiguration::devices, "List these GPUs.");
  d("what_if", &EstimateConfiguration::what_if,
    "Report what each technique, half the batch and half the length change alone, without a plan.");
  d("json", &EstimateConfiguration::json, "Print everything as JSON, in bytes.");
}

void check_unset(bool is_set, const std::string& option, const char* command = "hasten plan") {
  if (is_set) config::throw_conflict(option + " has no meaning for " + command, "leave it out");
}

void check_options_of_estimate(const EstimateConfiguration& step) {
  check_unset(step.measure, "--measure");
  check_unset(!step.html.empty(), "--html");
  check_unset(!step.output.empty(), "--output");
  check_unset(step.mode == EstimateMode::training && step.steps != EstimateConfiguration{}.steps,
              "--steps");
  if (step.what_if) return;
  check_unset(step.mode != EstimateMode::training, str("--mode ", name_of(step.mode)));
  if (const PredictedDevice* const kind = predicted_device_of(step.device))
    check_unset(/*is_set=*/true, str("--", kind->option()));
}

// A report on each technique alone includes all techniques, so options that choose techniques have
// no meaning.
void check_choices(const PlanConfiguration& plan) {
  constexpr const char* kCommand = "hasten plan --what_if, which reports all techniques";
  check_unset(!plan.use.empty(), "--use", kCommand);
  check_unset(!plan.avoid.empty(), "--avoid", kCommand);
  check_unset(plan.keep_effective_batch, "--keep_effective_batch", kCommand);
  check_unset(plan.exactness != PlanConfiguration{}.exactness, "--exactness", kCommand);
}

void set_limit(PlanConfiguration& plan) {
  const std::string& device = plan.step.device;
  const std::int64_t capacity = memory_limit_of(device);
  if (plan.memory.empty()) {
    if (capacity == 0 && !plan.step.what_if)
      config::throw_missing("--memory is missing", "set it to the limit, such as --memory 16GiB");
    plan.memory_bytes = capacity;
    return;
  }
  plan.memory_bytes = config::parse_size("--memory", plan.memory);
  if (capacity == 0 || plan.memory_bytes <= capacity) return;
  throw ConfigError("config.out-of-range", {.what = "--memory",
                                            .got = plan.memory,
                                            .expected = str("at most the memory of ", device, ", ",
                                                            human_bytes(capacity))});
}

// Reads the options of a plan for a program, which has training arguments of its own.
void read_for_program(PlanConfiguration& plan, const std::vector<std::string>& arguments) {
  plan.step.help = config::asks_for_help(arguments);
  if (plan.step.help) return;
  config::OptionTable table;
  describe_plan(table, plan);
  describe_for_program(table, plan.step);
  config::apply_flags(table, config::read_flags(table, arguments));
  if (plan.step.device != "cpu") find_gpu(plan.step.device);
}

}  // namespace

PlanConfiguration parse_plan(const std::vector<std::string>& arguments,
                             const config::Environment& environment) {
  PlanConfiguration plan;
  const auto program = std::find(arguments.begin(), arguments.end(), "--");
  const std::vector<std::string> own(arguments.begin(), program);
  // The list needs no model.
  plan.techniques = std::find(own.begin(), own.end(), "--techniques") != own.end();
  if (plan.techniques) return plan;
  if (program == arguments.end()) {
    plan.step = parse_estimate(own, environment,
                               [&](config::OptionTable& table) { describe_plan(table, plan); });
  } else {
    plan.program.assign(program + 1, arguments.end());
    read_for_program(plan, own);
  }
  if (plan.step.help || plan.step.devices) return plan;
  if (program != arguments.end() && plan.program.empty())
    config::throw_missing("no program after --", "name one: -- ./train");
  check_options_of_estimate(plan.step);
  if (plan.step.what_if) check_choices(plan);
  set_limit(plan);
  return plan;
}

std::string plan_help(int width) {
  PlanConfiguration plan;
  config::OptionTable table;
  describe_plan(table, plan);
  return "usage: hasten plan --memory LIMIT MODEL [--NAME VALUE ...]\n"
         "       hasten plan --memory LIMIT [--NAME VALUE ...] -- PROGRAM [ARGUMENT ...]\n"
         "       hasten plan --what_if MODEL [--NAME VALUE ...]\n\n"
         "Finds the techniques that fit a training step into the limit and make it fastest, by\n"
         "dry runs of the step, and prints the memory and the time of each change on the way.\n"
         "With --what_if it prints what each change does alone. The step is described by the\n"
         "options of `hasten estimate` and `hasten train`: --batch, --seq, --device, --optim,\n"
         "--gradient_accumulation_steps ... A PROGRAM trains with a hasten::Trainer, and the plan\n"
         "starts from its TrainingArguments: of the options it takes those below, --device,\n"
         "--what_if and --json.\n\n" +
         config::help_text(table, width);
}

}  // namespace hasten
