// `hasten plan`: chooses the techniques that make a step fit a memory limit and run fastest, or
// shows the effect of each change alone.
#include "hasten/plan/plan.h"

#include <iostream>
#include <utility>

#include "commands/plan_options.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/device/memory.h"
#include "program_needs.h"
#include "to_estimate_options.h"
#include "torch_commands.h"

namespace hasten::cli {
namespace {

// `hasten` is the command name with which this process was called.
PlanOptions options_of(const PlanConfiguration& run, const std::string& hasten) {
  PlanOptions options{.memory = run.memory_bytes,
                      .keep_effective_batch = run.keep_effective_batch,
                      .exactness = run.exactness,
                      .use = run.use,
                      .avoid = run.avoid};
  std::int64_t resident = host_memory().resident;
  if (run.program.empty()) {
    options.step = to_estimate_options(run.step);
  } else {
    PlannedProgram program = inspect_program(hasten, run.program, run.step.device);
    options.step.model = run.program.front();
    options.step.device = run.step.device;
    options.step.arguments = std::move(program.arguments);
    options.predictor = std::move(program.predictor);
    resident = program.resident;
  }
  // Without a limit, the plan shows the memory of the tensors, as `hasten estimate` does.
  if (run.step.device == "cpu" && run.memory_bytes > 0) options.process = resident;
  return options;
}

}  // namespace

int plan(int argc, char** argv) {
  const PlanConfiguration run = parse_plan({argv + 2, argv + argc}, config::process_environment());
  if (run.techniques) {
    std::cout << techniques_text();
    return 0;
  }
  PlanOptions options = options_of(run, argv[0]);
  if (run.step.what_if) {
    const anatomy::StepComparison comparison = compare_changes(options);
    std::cout << (run.step.json ? to_json(comparison) : to_text(comparison));
    return 0;
  }
  const StepPlan plan = plan_step(options);
  std::cout << (run.step.json ? to_json(plan) : to_text(plan));
  if (!run.yaml.empty()) {
    write_file_atomically(run.yaml, to_yaml(plan));
    std::cerr << "hasten plan: wrote " << run.yaml << '\n';
  }
  return 0;
}

}  // namespace hasten::cli
