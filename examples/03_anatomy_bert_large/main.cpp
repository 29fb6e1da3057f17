// The example of Hugging Face's page "model training anatomy", in the same order: the GPU memory at
// the start, after the first tensor, with the model, and after training; then what the memory
// holds.
//
//   $ anatomy_bert_large                                  # on the GPU, or else on the CPU
//   $ anatomy_bert_large --steps 3                        # three steps instead of an epoch
//   $ anatomy_bert_large --device cuda:v100-16gb          # predicts the same for a GPU, in a second
//   $ anatomy_bert_large --page                           # predicts the page's numbers, one by one
#include <torch/torch.h>

#include <iostream>
#include <optional>

#include "hasten/anatomy/dry_run.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/data/column_dataset.h"
#include "hasten/device/cuda_library.h"
#include "hasten/device/memory.h"
#include "hasten/models/pretrained_model.h"
#include "hasten/program/run_main.h"
#include "hasten/trainer/trainer.h"
#include "options.h"
#include "page.h"

using namespace hasten;
using anatomy::Report;

namespace {

constexpr std::int64_t kRows = 512, kLength = 512;

// Returns 512 rows of 512 random token ids and a random label.
TrainerDataset dummy_data() { return TrainerDataset(dummy_classification(kRows, kLength)); }

void print_operations(const Report& report) {
  std::cout << "\nShares of the three groups of operations\n";
  anatomy::OperationTotal all;
  for (std::size_t i = 0; i < anatomy::kGroups; ++i)
    all += total_of(report, static_cast<anatomy::OperationGroup>(i));
  const auto share = [](double part, double whole) {
    return whole > 0 ? fixed(100 * part / whole, 2) + " %" : "-";
  };
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i + 1 < anatomy::kGroups; ++i) {
    const auto group = static_cast<anatomy::OperationGroup>(i);
    const auto total = total_of(report, group);
    rows.push_back({std::string(name_of(group)), share(total.flops, all.flops),
                    share(total.seconds, report.dry ? 0 : all.seconds)});
  }
  std::cout << table({"group", "computation", "time"}, rows);
}

void print_components(const Report& report) {
  std::cout << "\nComponents of memory at the peak\n";
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < anatomy::kComponents; ++i) {
    const std::int64_t bytes = report.memory.at_peak[i];
    rows.push_back(
        {std::string(name_of(static_cast<anatomy::Component>(i))), group_thousands(bytes),
         fixed(static_cast<double>(bytes) / static_cast<double>(report.memory.parameters), 2)});
  }
  std::cout << table({"component", "bytes", "per parameter"}, rows);
}

void print_passes(const Report& report) {
  const auto forward = total_of(report, anatomy::Phase::forward),
             backward = total_of(report, anatomy::Phase::backward);
  std::cout << "\nThe backward pass computes " << fixed(backward.flops / forward.flops, 2)
            << " times as much as the forward pass";
  if (!report.dry)
    std::cout << " and takes " << fixed(backward.seconds / forward.seconds, 2) << " times as long";
  std::cout << ".\n";
}

void run(const Options& options) {
  std::optional<DryRun> dry;
  if (options.gpu) dry.emplace(*options.gpu);
  load_cuda_library();  // a GPU is used before the Trainer is made
  const at::Device device = torch::cuda::is_available() ? at::kCUDA : at::kCPU;
  const TemporaryDirectory scratch("anatomy-bert-large");

  print_gpu_utilization();  // at the start
  const at::Tensor first = at::ones({1, 1}).to(device);
  print_gpu_utilization();  // with the context and the kernels
  const auto model = load_model("bert-large", {}).model;
  model->to(device);
  print_gpu_utilization();  // with the model

  Report report;
  Trainer trainer(model,
                  {.output_dir = scratch.path().string(),
                   .per_device_train_batch_size = 4,
                   .num_train_epochs = 1,
                   .max_steps = options.steps > 0 ? options.steps : -1,
                   .logging_strategy = IntervalStrategy::no,
                   .log_level = LogLevel::error,
                   .anatomy = "text",
                   .anatomy_steps = options.steps > 0 ? options.steps : 3,
                   .save_strategy = SaveStrategy::no},
                  {.train_dataset = dummy_data(),
                   .log_sink = [](std::string_view) {},
                   .on_anatomy = [&](const Report& found) { report = found; }});
  const TrainOutput result = trainer.train();
  if (dry) {
    print_gpu_utilization();  // a prediction has no times
  } else {
    print_summary(result);
  }
  print_operations(report);
  print_components(report);
  print_passes(report);
}

}  // namespace

int main(int argc, char** argv) {
  return run_main([&] {
    const Options options = parse(argc, argv);
    keep_freed_memory();
    if (options.page) {
      compare_with_page();
    } else {
      run(options);
    }
    return 0;
  });
}
