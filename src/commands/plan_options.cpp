#include "commands/plan_options.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/machine/gpus.h"
#include "hasten/tpu/machine/tpus.h"
#include "options/help.h"
#include "options/sources.h"

namespace hasten {
namespace {

void describe_plan(config::OptionTable& table, PlanConfiguration& plan) {
  config::Describer d(table, plan);
  d("memory", &PlanConfiguration::memory,
    "Set the limit of memory, with a unit: 16GiB, 16GB. On the CPU it includes the program. Unset: "
    "the memory of the GPU that --device names.");
  d("keep_effective_batch", &PlanConfiguration::keep_effective_batch,
    "Keep the rows of a step: batch times gradient_accumulation_steps. Otherwise a step may have "
    "fewer rows.");
  d("exactness", &PlanConfiguration::exactness,
    "Consider techniques that are at least as exact: exact (nothing but the order of sums "
    "changes), "
    "rounding, or other (another algorithm).");
  d("use", &PlanConfiguration::use, "Use these techniques in any case.");
  d("avoid", &PlanConfiguration::avoid, "Do not use these techniques.");
  d("yaml", &PlanConfiguration::yaml,
    "Write the training arguments to this file, for `hasten train --config_file`.");
  d("techniques", &PlanConfiguration::techniques, "List the techniques.");
}

void refuse_options_of_estimate(const EstimateConfiguration& step) {
  const auto refuse = [](bool is_set, const char* option) {
    if (is_set)
      config::throw_conflict(str(option, " has no meaning for hasten plan"), "leave it out");
  };
  refuse(step.measure, "--measure");
  refuse(step.what_if, "--what_if");
  refuse(!step.html.empty(), "--html");
  refuse(!step.output.empty(), "--output");
  refuse(step.mode == EstimateMode::inference, "--mode inference");
  refuse(starts_with(step.device, kTpuDevice), "--tpu");
}

void set_limit(PlanConfiguration& plan) {
  if (!plan.memory.empty()) {
    plan.memory_bytes = parse_memory(plan.memory);
  } else if (plan.step.device == "cpu") {
    config::throw_missing("hasten plan: no limit of memory", "name one: --memory 16GiB");
  } else {
    plan.memory_bytes = find_gpu(plan.step.device).memory;
  }
}

}  // namespace

std::int64_t parse_memory(const std::string& text) {
  constexpr std::pair<const char*, double> kUnits[] = {{"", 1},
                                                       {"b", 1},
                                                       {"kb", 1e3},
                                                       {"mb", 1e6},
                                                       {"gb", 1e9},
                                                       {"tb", 1e12},
                                                       {"k", 1LL << 10},
                                                       {"m", 1LL << 20},
                                                       {"g", 1LL << 30},
                                                       {"t", 1LL << 40},
                                                       {"kib", 1LL << 10},
                                                       {"mib", 1LL << 20},
                                                       {"gib", 1LL << 30},
                                                       {"tib", 1LL << 40}};
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const std::string unit = lower(trim(end));
  const auto found = std::find_if(std::begin(kUnits), std::end(kUnits),
                                  [&](const auto& each) { return unit == each.first; });
  const double bytes = found == std::end(kUnits) ? 0 : number * found->second;
  if (end == text.c_str() || !(bytes >= 1 && bytes < 9e18)) {
    throw ConfigError("config.bad-value",
                      {.what = "--memory",
                       .got = text,
                       .expected = "a number of bytes with a unit, such as 16GiB"});
  }
  return static_cast<std::int64_t>(bytes);
}

PlanConfiguration parse_plan(const std::vector<std::string>& words,
                             const config::Environment& environment) {
  PlanConfiguration plan;
  // The list needs no model.
  plan.techniques = std::find(words.begin(), words.end(), "--techniques") != words.end();
  if (plan.techniques) return plan;
  const auto program = std::find(words.begin(), words.end(), "--");
  std::vector<std::string> own(words.begin(), program);
  if (program != words.end()) {
    plan.program.assign(program + 1, words.end());
    if (plan.program.empty() && !config::asks_for_help(own))
      config::throw_missing("hasten plan: no program after --", "name one: -- ./train");
    own.insert(own.begin(), "bert-base");  // stands for the program, of which nothing is known
  }
  plan.step = parse_estimate(own, environment,
                             [&](config::OptionTable& table) { describe_plan(table, plan); });
  if (plan.step.help || plan.step.devices) return plan;
  refuse_options_of_estimate(plan.step);
  set_limit(plan);
  return plan;
}

std::string plan_help(int width) {
  PlanConfiguration plan;
  config::OptionTable table;
  describe_plan(table, plan);
  return "usage: hasten plan --memory LIMIT MODEL [--NAME VALUE ...]\n"
         "       hasten plan --memory LIMIT [--NAME VALUE ...] -- PROGRAM [ARGUMENT ...]\n\n"
         "Finds the techniques with which a training step fits the limit and is fastest, by dry\n"
         "runs of the step, and prints the memory and the time of each change on the way. The\n"
         "step is described by the options of `hasten estimate` and `hasten train`: --batch,\n"
         "--seq, --device, --optim, --gradient_accumulation_steps ... A PROGRAM has to read the\n"
         "options of `hasten train` from its own command line.\n\n" +
         config::help_text(table, width);
}

}  // namespace hasten
