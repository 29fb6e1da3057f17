// Runs with and without activation_checkpointing have the same numbers, in one and two processes.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "hasten/anatomy/report.h"
#include "hasten/models/recomputation.h"
#include "hasten/process/notebook_launcher.h"
#include "hasten/trainer/trainer.h"
#include "unit/code_of.h"
#include "unit/prepare/multiprocess_checks.h"
#include "unit/trainer/tiny.h"

namespace trainer_recomputed_run_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
using namespace hasten::tiny_runs;

namespace {

std::shared_ptr<PreTrainedModel> three_layers() {
  torch::manual_seed(7);
  BertConfig config = tiny();
  config.num_hidden_layers = 3;
  auto model = std::make_shared<BertForSequenceClassification>(config);
  model->initialize();
  return model;
}

struct Run {
  std::vector<double> losses, norms;
  TensorDict weights;
  std::int64_t calls = 0;  // the operator calls in the backward passes
};

Run run(TrainingArguments args) {
  const Folder folder;
  args.output_dir = folder.path.string();
  args.max_steps = 6;
  args.anatomy = "text";
  const auto model = three_layers();
  Run out;
  Trainer trainer(model, args,
                  {.train_dataset = TrainerDataset(rows(40)),
                   .log_sink = [](std::string_view) {},
                   .on_anatomy =
                       [&](const anatomy::Report& report) {
                         out.calls = total_of(report, anatomy::Phase::backward).count;
                       }});
  trainer.train();
  out.losses = logged(trainer);
  out.norms = logged(trainer, "grad_norm");
  out.weights = model->state_dict();
  return out;
}

void require_equal(const Run& a, const Run& b, const std::string& what) {
  require(a.losses == b.losses && !a.losses.empty(), what + ": losses");
  require(a.norms == b.norms, what + ": norms");
  for (const auto& [name, tensor] : a.weights)
    require(at::equal(tensor, b.weights.at(name)), what + ": " + name);
}

// A user's layer that declares that it can be recomputed.
struct Layer : torch::nn::Module, RecomputableLayer {
  Layer() { register_module("linear", linear); }
  at::Tensor forward(const at::Tensor& x) {
    return run_recomputable(
        [this](const at::Tensor& y) { return torch::dropout(linear(y).tanh(), 0.2, true) + y; }, x);
  }
  torch::nn::Linear linear{12, 12};
};
struct Net : torch::nn::Module {
  Net() {
    torch::manual_seed(5);
    for (int i = 0; i < 3; ++i)
      layers.push_back(register_module("layer" + std::to_string(i), std::make_shared<Layer>()));
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& layer : layers) x = layer->forward(x);
    return x;
  }
  std::vector<std::shared_ptr<Layer>> layers;
};
struct Plain : torch::nn::Module {
  Plain() { register_module("linear", linear); }
  at::Tensor forward(const at::Tensor& x) { return linear(x); }
  torch::nn::Linear linear{12, 12};
};

template <class Module>
std::vector<double> losses_of(const TrainingArguments& args) {
  Trainer trainer(std::make_shared<Module>(), args,
                  {.train_dataset = TrainerDataset(rows(16)),
                   .compute_loss =
                       [](Module& net, const TensorDict& batch) {
                         const at::Tensor x = batch.at("input_ids").to(at::kFloat) / 60;
                         return ModelOutput{.loss = net.forward(x).square().mean()};
                       },
                   .log_sink = [](std::string_view) {}});
  trainer.train();
  return logged(trainer);
}

}  // namespace

TEST_CASE("activation_checkpointing: losses, norms and weights are those of the plain run") {
  const Folder folder;
  TrainingArguments args = short_run(folder.path);
  for (const std::int64_t accumulation : {1, 3}) {
    args.gradient_accumulation_steps = accumulation;
    args.activation_checkpointing = false;
    args.activation_checkpointing_kwargs = {};
    const Run plain = run(args);
    args.activation_checkpointing = true;
    std::int64_t every = 0;
    for (const Kwargs& kwargs :
         {Kwargs{}, Kwargs{{"every_n_layers", 2}}, Kwargs{{"policy", "selective"}},
          Kwargs{{"modules", "*.0:*.2"}, {"use_reentrant", true}}}) {
      CAPTURE(to_text(kwargs));
      args.activation_checkpointing_kwargs = kwargs;
      const Run recomputed = run(args);
      CHECK_NOTHROW(require_equal(plain, recomputed, "recomputed"));
      CHECK(recomputed.calls > plain.calls);
      if (kwargs.empty()) every = recomputed.calls;
      if (kwargs.has("every_n_layers") || kwargs.has("modules")) CHECK(recomputed.calls < every);
    }
  }
}

TEST_CASE("activation_checkpointing: two processes exchange each gradient once") {
  const Folder folder;
  notebook_launcher(
      [&] {
        TrainingArguments args = short_run(folder.path, 2);
        args.ddp_bucket_cap_mb = 1;
        const Run plain = run(args);
        args.activation_checkpointing = true;
        require_equal(plain, run(args), "full");
        args.activation_checkpointing_kwargs = {{"policy", "selective"}};
        require_equal(plain, run(args), "selective");
      },
      {.num_processes = 2});
}

TEST_CASE("activation_checkpointing: two processes may have windows and unused parameters") {
  const Folder folder;
  notebook_launcher(
      [&] {
        TrainingArguments args = short_run(folder.path, 2);
        args.ddp_bucket_cap_mb = 1;
        args.ddp_find_unused_parameters = true;
        args.gradient_accumulation_steps = 2;
        const Run plain = run(args);
        args.activation_checkpointing = true;
        args.activation_checkpointing_kwargs = {{"policy", "selective"}};
        require_equal(plain, run(args), "windows");
      },
      {.num_processes = 2});
}

TEST_CASE("activation_checkpointing: user modules need a RecomputableLayer") {
  const Folder folder;
  TrainingArguments args = short_run(folder.path);
  args.max_steps = 4;
  const std::vector<double> plain = losses_of<Net>(args);
  args.activation_checkpointing = true;
  CHECK(losses_of<Net>(args) == plain);
  CHECK(code_of([&] { losses_of<Plain>(args); }) == "models.no-recomputation");
  args.activation_checkpointing_kwargs = {{"modules", "block*"}};
  CHECK(code_of([&] { losses_of<Net>(args); }) == "models.recomputed-modules");
}

TEST_CASE("activation_offloading: the CPU is refused before the first step") {
  const Folder folder;
  TrainingArguments args = short_run(folder.path);
  args.activation_offloading = true;
  CHECK(code_of([&] { losses_of<Net>(args); }) == "autograd.offload");
  args.activation_offloading = false;
  args.activation_checkpointing = true;
  args.activation_checkpointing_kwargs = {{"offload", true}};
  CHECK(code_of([&] { losses_of<Net>(args); }) == "autograd.offload");
}

}  // namespace trainer_recomputed_run_test
