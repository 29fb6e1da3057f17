// Loads the weights, the optimizer and the schedule from checkpoints of Accelerate and of the
// Hugging Face Trainer, and continues the runs with Python's numbers.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <filesystem>

#include "hasten/base/files.h"
#include "hasten/checkpoint/pytorch_optimizer.h"
#include "hasten/formats/module_weights.h"
#include "hasten/formats/pytorch_file.h"
#include "hasten/formats/safetensors.h"
#include "hasten/optim/adamw.h"
#include "hasten/optim/detail/nadam.h"
#include "hasten/optim/scheduler.h"
#include "unit/code_of.h"

namespace oracle_pickles_test {

using namespace hasten;
namespace fs = std::filesystem;
namespace nn = torch::nn;
namespace optim = torch::optim;

namespace {

const fs::path data = fs::path(HASTEN_TEST_DATA) / "oracle/data/pickles";
constexpr PyTorchFileOptions kAllowed{.allow_pickle = true};
constexpr double kTolerance = 1e-6;

struct NetImpl : nn::Module {
  NetImpl() {
    first = register_module("first", nn::Linear(6, 7));
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({7})));
    last = register_module("last", nn::Linear(7, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return last(torch::tanh(norm(first(x)))); }
  nn::Linear first{nullptr}, last{nullptr};
  nn::LayerNorm norm{nullptr};
};
TORCH_MODULE(Net);

// The groups of generate_pickles.py. They have the default options, which the file replaces.
std::vector<optim::OptimizerParamGroup> groups_of(Net net) {
  std::vector<at::Tensor> decayed, others;
  for (const auto& item : net->named_parameters()) {
    const bool is_other = item.key().find("norm") != std::string::npos ||
                          item.key().find("bias") != std::string::npos;
    (is_other ? others : decayed).push_back(item.value());
  }
  return {optim::OptimizerParamGroup(decayed), optim::OptimizerParamGroup(others)};
}

struct ImportedRun {
  const char* folder;
  const char* ending;
  double lr;
  std::int64_t warmup;
};

void check_run(const ImportedRun& run, bool stops_in_between) {
  CAPTURE(run.folder);
  const fs::path from = data / run.folder;
  const TemporaryDirectory folder;
  Net net;
  convert_pytorch_weights(from / "pytorch_model.bin", folder.path() / "net.safetensors", kAllowed);
  load_weights(*net, folder.path() / "net.safetensors");
  AdamW adamw(groups_of(net), optim::AdamWOptions(run.lr));
  const auto scheduler = get_scheduler(SchedulerType::linear, adamw,
                                       {.num_warmup_steps = run.warmup, .num_training_steps = 20});
  load_pytorch_optimizer(from / (std::string("optimizer.") + run.ending), adamw, kAllowed);
  const PyTorchSchedule saved =
      load_pytorch_schedule(from / (std::string("scheduler.") + run.ending), kAllowed);
  CHECK(saved.last_epoch == 5);
  CHECK(saved.base_lrs == scheduler->base_lrs());
  scheduler->set_last_step(saved.last_epoch);
  CHECK(scheduler->get_last_lr() == saved.last_lrs);
  const TensorDict python = load_safetensors(data / (std::string(run.folder) + ".safetensors"));
  const at::Tensor &x = python.at("x"), &y = python.at("y"), &rates = python.at("rates");
  for (std::int64_t step = 0; step < x.size(0); ++step) {
    for (std::int64_t group = 0; group < 2; ++group)
      CHECK(scheduler->get_last_lr()[static_cast<std::size_t>(group)] ==
            doctest::Approx(rates[step][group].item<double>()).epsilon(1e-12));
    adamw.zero_grad();
    torch::mse_loss(net->forward(x[step]), y[step]).backward();
    adamw.step();
    scheduler->step();
    if (stops_in_between) break;
  }
  double largest = 0;
  for (const auto& item : net->named_parameters()) {
    const at::Tensor difference = item.value() - python.at("weights." + item.key());
    largest = std::max(largest, difference.abs().max().item<double>());
  }
  if (stops_in_between) {
    CHECK(largest > kTolerance);  // the comparison detects a missing step
  } else {
    CHECK(largest <= kTolerance);
  }
}

constexpr ImportedRun kAccelerate{"accelerate", "bin", 3e-3, 3}, kTrainer{"trainer", "pt", 4e-3, 2};

// Continues the file's run for two steps, as generate_pickles.py does.
template <class Optimizer, class Options>
void check_optimizer(const char* name, const Options& options) {
  CAPTURE(name);
  const TensorDict python = load_safetensors(data / (std::string(name) + ".safetensors"));
  at::Tensor weight = python.at("before").clone().requires_grad_();
  Optimizer optimizer(std::vector<at::Tensor>{weight}, options);
  load_pytorch_optimizer(data / (std::string(name) + ".pt"), optimizer, kAllowed);
  for (std::int64_t step = 2; step < 4; ++step) {
    optimizer.zero_grad();
    torch::matmul(python.at("x")[step], weight).square().mean().backward();
    optimizer.step();
  }
  CHECK((weight - python.at("after")).abs().max().item<double>() <= kTolerance);
}

}  // namespace

TEST_CASE("pickles: a checkpoint of Accelerate continues with Python's numbers") {
  check_run(kAccelerate, false);
  check_run(kAccelerate, true);
}

TEST_CASE("pickles: a checkpoint of the Hugging Face Trainer continues with Python's numbers") {
  check_run(kTrainer, false);
}

TEST_CASE("pickles: SGD, RMSprop, Adagrad, Adam and NAdam continue with the options of the file") {
  check_optimizer<optim::SGD>("sgd", optim::SGDOptions(1.0));
  check_optimizer<optim::RMSprop>("rmsprop", optim::RMSpropOptions(1.0));
  check_optimizer<optim::Adagrad>("adagrad", optim::AdagradOptions(1.0));
  check_optimizer<optim::Adam>("adam_amsgrad", optim::AdamOptions(1.0));
  check_optimizer<NAdam>("nadam", NAdamOptions(1.0));  // the file has maximize = True
}

TEST_CASE("pickles: a state that does not fit changes nothing") {
  Net net;
  AdamW adamw(groups_of(net), optim::AdamWOptions(1e-3));
  const fs::path file = data / "accelerate/optimizer.bin";
  const auto code = [&](optim::Optimizer& optimizer, const fs::path& path) {
    return code_of([&] { load_pytorch_optimizer(path, optimizer, kAllowed); });
  };
  CHECK(code_of([&] { load_pytorch_optimizer(file, adamw); }) == "pickle.not-allowed");
  CHECK(code(adamw, data / "sgd.pt") == "checkpoint.optimizer-options");
  CHECK(code(adamw, data / "zoo.bin") == "checkpoint.pytorch-state");
  CHECK(code(adamw, data / "accelerate/scheduler.bin") == "checkpoint.pytorch-state");
  CHECK(code_of([&] { load_pytorch_schedule(file, kAllowed); }) == "checkpoint.pytorch-state");
  optim::Adam adam(groups_of(net), optim::AdamOptions(1e-3));
  CHECK(code(adam, file) == "checkpoint.optimizer-kind");
  CHECK(adamw.state().empty());
  // The file does not fit the same groups if their parameters have different shapes.
  load_pytorch_optimizer(file, adamw, kAllowed);
  const std::size_t states = adamw.state().size();
  CHECK(states == 6);
  auto groups = groups_of(net);
  std::swap(groups[0].params()[0], groups[0].params()[1]);
  AdamW other(groups, optim::AdamWOptions(1e-3));
  CHECK(code(other, file) == "checkpoint.optimizer-shape");
  CHECK(other.state().empty());
  CHECK(static_cast<optim::AdamWOptions&>(other.param_groups()[0].options()).lr() == 1e-3);
}

}  // namespace oracle_pickles_test
