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

// What nvidia-smi showed on that page and on its companion page about a single GPU, in MiB.
constexpr std::int64_t kFirstTensor = 1343, kWithModel = 2631, kAfterTraining = 14949,
                       kFourTimesOne = 8681;  // batches of 1, four of them accumulated

// How a program trains. The defaults are those of the page's programs, the other values today's.
struct TrainingSetup {
  std::int64_t batch = 4, accumulated = 1;
  // Softmax keeps its input as well as its result; not since PyTorch 1.11 (issue 64000).
  bool keeps_softmax_input = true;
  bool keeps_gradients = true;   // zero_grad fills them with zeros; frees them since PyTorch 2.0
  bool fused_optimizer = false;  // AdamW is one operator without temporaries
  AttentionImplementation attention = AttentionImplementation::eager;
  bool lazy_kernels = false;  // a kernel is loaded when it is first used, since CUDA 11.7
};

// Keeps the input of each softmax until its gradient is computed, as PyTorch's own graph did.
class KeepSoftmaxInputs {
 public:
  KeepSoftmaxInputs() {
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
  ~KeepSoftmaxInputs() {
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

Stages predicted(const TrainingSetup& setup) {
  Gpu gpu = find_gpu("cuda:v100-16gb");
  if (!setup.lazy_kernels)
    gpu.context = (kFirstTensor - 2) << 20;  // 2 MiB are the tensor's segment
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
  std::optional<KeepSoftmaxInputs> keep;
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
  return str(to < from ? "-" : "+", grouped(std::abs(to - from)));
}

std::vector<std::string> compared(const std::string& what, std::int64_t page, std::int64_t ours) {
  const double off = 100.0 * static_cast<double>(ours - page) / static_cast<double>(page);
  return {what, grouped(page), grouped(ours), (off < 0 ? "" : "+") + fixed(off, 1) + " %"};
}

void print_measured() {
  const Stages four = predicted({}), one = predicted({.batch = 1, .accumulated = 4});
  std::cout
      << "BERT-large, rows of 512 tokens, float, AdamW, on a V100 with 16 GB; MiB as nvidia-smi "
         "shows them\n\n"
      << table({"", "the page", "predicted", ""},
               {{"after the first tensor", grouped(kFirstTensor), "", "taken from the page"},
                compared("the model adds", kWithModel - kFirstTensor,
                         four.with_model - four.first_tensor),
                compared("after training, batches of 4", kAfterTraining, four.after_training),
                compared("after training, 4 batches of 1 a step", kFourTimesOne,
                         one.after_training)});
}

void print_changes_since() {
  TrainingSetup setup;
  std::int64_t before = predicted(setup).after_training;
  std::vector<std::vector<std::string>> rows = {
      {"as the page's programs did, batches of 4", "", grouped(before)}};
  const auto add = [&](const std::string& name) {
    const std::int64_t now = predicted(setup).after_training;
    rows.push_back({name, change(before, now), grouped(now)});
    before = now;
  };
  setup.keeps_softmax_input = false;
  add("softmax keeps only its result (PyTorch 1.11)");
  setup.keeps_gradients = false;
  add("gradients freed after a step, not filled with zeros (2.0)");
  setup.fused_optimizer = true;
  add("AdamW in one operator");
  setup.attention = AttentionImplementation::sdpa;
  add("attention in one kernel, which keeps no probabilities");
  setup.lazy_kernels = true;
  add("kernels loaded when they are used (CUDA 11.7)");
  std::cout << "\nWhat has changed since, one thing after the other\n\n"
            << table({"", "MiB", "after training"}, rows);
}

}  // namespace

void compare_with_page() {
  print_measured();
  print_changes_since();
}
