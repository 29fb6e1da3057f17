#include "page.h"

#include <ATen/record_function.h>
#include <torch/torch.h>

#include <iostream>
#include <optional>

#include "hasten/anatomy/dry_run.h"
#include "hasten/base/text.h"
#include "hasten/data/column_dataset.h"
#include "hasten/device/memory.h"
#include "hasten/models/pretrained_model.h"
#include "hasten/optim/adamw.h"

using namespace hasten;

namespace {

// The figures of nvidia-smi on that page and on its companion page about a single GPU, in MiB.
constexpr std::int64_t kFirstTensor = 1343, kWithModel = 2631, kAfterTraining = 14949,
                       kAfterAccumulating = 8681;  // four batches of 1 per step

// How a program trains. The defaults are those of the page's programs; the other values are
// today's.
struct TrainingSetup {
  std::int64_t batch = 4, accumulated = 1;
  // Softmax keeps its input in addition to its result, as before PyTorch 1.11 (issue 64000).
  bool keeps_softmax_input = true;
  bool keeps_gradients = true;   // zero_grad fills gradients with zeros, as before PyTorch 2.0
  bool fused_optimizer = false;  // AdamW is one operator without temporaries
  AttentionImplementation attention = AttentionImplementation::eager;
  bool lazy_kernels = false;  // a kernel is loaded at its first use, since CUDA 11.7
};

// Keeps the input of each softmax until its gradient is computed, as PyTorch's graph did.
class SoftmaxInputHolder {
 public:
  SoftmaxInputHolder() {
    kept().clear();
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(
            [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
              const std::string name = function.name();
              if (name == "aten::_softmax") kept().push_back(function.inputs()[0].toTensor());
              if (name == "aten::_softmax_backward_data" && !kept().empty()) kept().pop_back();
              return nullptr;
            })
            .needsInputs(true)
            .scopes({at::RecordScope::FUNCTION}));
  }
  ~SoftmaxInputHolder() {
    at::removeCallback(handle_);
    kept().clear();
  }

 private:
  static std::vector<at::Tensor>& kept() {
    static std::vector<at::Tensor> all;
    return all;
  }
  at::CallbackHandle handle_;
};

struct Stages {
  std::int64_t first_tensor = 0, with_model = 0, after_training = 0;  // MiB
};

Stages predict(const TrainingSetup& setup) {
  Gpu gpu = find_gpu("cuda:v100-16gb");
  if (!setup.lazy_kernels)
    gpu.context = (kFirstTensor - 2) << 20;  // the tensor's segment has 2 MiB
  const DryRun dry(gpu);
  const auto used = [] { return gpu_memory_used().value_or(0) >> 20; };
  Stages stages;
  const at::Tensor first = at::ones({1, 1}).to(at::kCUDA);
  stages.first_tensor = used();
  const auto model = load_model("bert-large", {.attn_implementation = setup.attention}).model;
  model->to(at::kCUDA);
  stages.with_model = used();

  std::unique_ptr<torch::optim::Optimizer> optimizer;
  if (setup.fused_optimizer) {
    optimizer = std::make_unique<AdamW>(model->parameters());
  } else {
    optimizer = std::make_unique<torch::optim::AdamW>(model->parameters());
  }
  std::optional<SoftmaxInputHolder> keep;
  if (setup.keeps_softmax_input) keep.emplace();
  for (int step = 0; step < 3; ++step) {
    for (std::int64_t i = 0; i < setup.accumulated; ++i) {
      const at::Tensor ids = at::randint(100, 30000, {setup.batch, 512}).to(at::kCUDA),
                       labels = at::randint(0, 2, {setup.batch}).to(at::kCUDA),
                       mask = at::ones({setup.batch, 512}, at::kLong).to(at::kCUDA);
      const auto out =
          model->forward({{"input_ids", ids}, {"attention_mask", mask}, {"labels", labels}});
      (out.loss / setup.accumulated).backward();
    }
    torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0);
    optimizer->step();
    optimizer->zero_grad(/*set_to_none=*/!setup.keeps_gradients);
  }
  stages.after_training = used();
  return stages;
}

std::string change(std::int64_t from, std::int64_t to) {
  return str(to < from ? "-" : "+", group_thousands(std::abs(to - from)));
}

std::vector<std::string> comparison(const std::string& what, std::int64_t page,
                                    std::int64_t prediction) {
  const double error = 100.0 * static_cast<double>(prediction - page) / static_cast<double>(page);
  return {what, group_thousands(page), group_thousands(prediction),
          (error < 0 ? "" : "+") + fixed(error, 1) + " %"};
}

void print_measured() {
  const Stages whole = predict({}), accumulated = predict({.batch = 1, .accumulated = 4});
  std::cout << "BERT-large, 512 tokens per row, float, AdamW, on a V100 with 16 GB; MiB as "
               "reported by nvidia-smi\n\n"
            << table({"", "page", "predicted", ""},
                     {{"after the first tensor", group_thousands(kFirstTensor), "",
                       "taken from the page"},
                      comparison("added by the model", kWithModel - kFirstTensor,
                                 whole.with_model - whole.first_tensor),
                      comparison("after training, batches of 4", kAfterTraining,
                                 whole.after_training),
                      comparison("after training, 4 batches of 1 per step", kAfterAccumulating,
                                 accumulated.after_training)});
}

void print_changes_since() {
  TrainingSetup setup;
  std::int64_t before = predict(setup).after_training;
  std::vector<std::vector<std::string>> rows = {
      {"the page's program, batches of 4", "", group_thousands(before)}};
  const auto add = [&](const std::string& name) {
    const std::int64_t now = predict(setup).after_training;
    rows.push_back({name, change(before, now), group_thousands(now)});
    before = now;
  };
  setup.keeps_softmax_input = false;
  add("softmax keeps only its result (PyTorch 1.11)");
  setup.keeps_gradients = false;
  add("gradients are freed after a step (PyTorch 2.0)");
  setup.fused_optimizer = true;
  add("AdamW is one operator");
  setup.attention = AttentionImplementation::sdpa;
  add("attention is one kernel and keeps no probabilities");
  setup.lazy_kernels = true;
  add("kernels are loaded at their first use (CUDA 11.7)");
  std::cout << "\nChanges since then, one after the other\n\n"
            << table({"", "MiB", "after training"}, rows);
}

}  // namespace

void compare_with_page() {
  print_measured();
  print_changes_since();
}
