// `hasten estimate`: predicts or measures what a training step takes.
#include "hasten/trainer/estimate.h"

#include <iostream>

#include "commands/estimate_options.h"
#include "hasten/base/text.h"
#include "hasten/tpu/machine/tpus.h"
#include "torch_commands.h"

namespace hasten::cli {
namespace {

bool asks_what_if(const EstimateConfiguration& run) { return run.what_if || !run.html.empty(); }

// A process cannot use another device after a dry TPU, so the alternatives, which are forks, and
// the anatomy's prediction come first.
int estimate_tpu(const EstimateOptions& asked, const EstimateConfiguration& run) {
  std::vector<anatomy::Alternative> others;
  if (asks_what_if(run))
    others =
        what_if(asked, [](const std::string& name) { std::cerr << "what if: " << name << '\n'; });
  EstimateOptions on_cpu = asked;
  on_cpu.device = "cpu";
  const anatomy::TpuPrediction prediction = anatomy::to_prediction(hasten::estimate(on_cpu));
  anatomy::TpuAccount account = estimate_for_tpu(asked);
  account.alternatives = std::move(others);
  std::cout << (run.json ? to_json(account, &prediction) : to_text(account, &prediction));
  if (!run.html.empty()) write_account(run.html, account, &prediction);
  return account.failed.empty() || !fits(account) ? 0 : 1;
}

}  // namespace

int estimate(int argc, char** argv) {
  const EstimateConfiguration run =
      parse_estimate({argv + 2, argv + argc}, config::process_environment());
  const TrainOptions& options = run.train.options;
  const EstimateOptions asked{.model = options.model,
                              .num_labels = options.num_labels.value_or(0),
                              .hidden_dropout = options.hidden_dropout,
                              .attention_dropout = options.attention_dropout,
                              .classifier_dropout = options.classifier_dropout,
                              .ignore_mismatched_sizes = options.ignore_mismatched_sizes,
                              .attn_implementation = options.attn_implementation,
                              .length = options.dummy_length,
                              .mode = run.mode,
                              .steps = run.steps,
                              .arguments = run.train.arguments,
                              .libraries = options.library,
                              .dry = !run.measure,
                              .device = run.device};
  if (starts_with(run.device, kTpuDevice)) return estimate_tpu(asked, run);
  anatomy::Report report = hasten::estimate(asked);
  add_roofs(report);
  if (asks_what_if(run)) report.alternatives = what_if(asked);
  std::cout << (run.json ? to_json(report) : to_text(report));
  if (!run.html.empty()) write_report(run.html, report);
  return 0;
}

}  // namespace hasten::cli
