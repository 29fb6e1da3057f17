// `hasten plan`: chooses the techniques with which a step fits a limit of memory and is fastest.
#include "hasten/plan/plan.h"

#include <iostream>

#include "commands/plan_options.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/device/memory.h"
#include "program_needs.h"
#include "step_of.h"
#include "torch_commands.h"

namespace hasten::cli {

int plan(int argc, char** argv) {
  const PlanConfiguration run = parse_plan({argv + 2, argv + argc}, config::process_environment());
  if (run.techniques) {
    std::cout << techniques_text();
    return 0;
  }
  const bool on_cpu = run.step.device == "cpu";
  PlanOptions options{.step = step_of(run.step),
                      .memory = run.memory_bytes,
                      .process = on_cpu ? host_memory().resident : 0,
                      .keep_effective_batch = run.keep_effective_batch,
                      .exactness = run.exactness,
                      .use = run.use,
                      .avoid = run.avoid};
  if (!run.program.empty()) {
    options.step.model = run.program.front();
    options.predictor = program_predictor(argv[0], run.program, run.step.device);
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
