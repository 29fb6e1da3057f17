// save_state refuses an optimizer that may have state of which it does not know.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <filesystem>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "unit/code_of.h"

namespace prepare_own_optimizers_test {

using namespace hasten;
namespace fs = std::filesystem;

namespace {

// Has the options of LibTorch's SGD, and keeps its momentum in a member.
struct MemberMomentum : torch::optim::Optimizer {
  explicit MemberMomentum(std::vector<at::Tensor> parameters)
      : Optimizer({torch::optim::OptimizerParamGroup(std::move(parameters))},
                  std::make_unique<torch::optim::SGDOptions>(0.1)) {}
  at::Tensor step(LossClosure) override {
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& parameter : param_groups()[0].params()) {
      at::Tensor& momentum = momenta[parameter.unsafeGetTensorImpl()];
      momentum = momentum.defined() ? momentum * 0.9 + parameter.grad() : parameter.grad().clone();
      parameter.sub_(momentum, 0.1);
    }
    return {};
  }
  std::map<void*, at::Tensor> momenta;
};

}  // namespace

TEST_CASE("save_state: an own optimizer with LibTorch's options is refused, and nothing is lost") {
  const TemporaryDirectory folder;
  Accelerator accelerator({.cpu = true});
  const auto net = std::make_shared<torch::nn::LinearImpl>(2, 1);
  auto own = std::make_shared<MemberMomentum>(net->parameters());
  auto [model, optimizer] = accelerator.prepare(net, own);
  accelerator.backward(model(at::ones({3, 2})).mean());
  optimizer.step();
  CHECK(code_of([&] { accelerator.save_state(folder.path() / "state"); }) ==
        "checkpoint.unknown-optimizer");
  CHECK_FALSE(fs::exists(folder.path() / "state"));
}

}  // namespace prepare_own_optimizers_test
