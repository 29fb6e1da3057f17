// Compares MuonAdamW with the two optimizers that it combines.
#include "hasten/optim/detail/muon_adamw.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <vector>

#include "hasten/base/error.h"
#include "hasten/optim/detail/muon.h"

namespace optim_muon_adamw_test {

using namespace hasten;

namespace {

struct Parameters {
  at::Tensor matrix = at::randn({6, 4}).requires_grad_(), vector = at::randn({5}).requires_grad_();
  Parameters copy() const {
    return {matrix.detach().clone().requires_grad_(), vector.detach().clone().requires_grad_()};
  }
  void set_gradients(const at::Tensor& of_matrix, const at::Tensor& of_vector) {
    matrix.mutable_grad() = of_matrix.clone();
    vector.mutable_grad() = of_vector.clone();
  }
};

}  // namespace

TEST_CASE("muon with adamw: steps equal those of Muon and of LibTorch's AdamW") {
  torch::manual_seed(5);
  Parameters own, other = own.copy();
  std::vector<torch::optim::OptimizerParamGroup> groups;
  MuonAdamWOptions options(2e-2);
  options.weight_decay(0.05).betas({0.8, 0.95}).eps(1e-6);
  groups.emplace_back(std::vector<at::Tensor>{own.matrix}, options.clone());
  groups.emplace_back(std::vector<at::Tensor>{own.vector}, options.use_muon(false).clone());
  MuonAdamW both(groups, options);
  Muon muon({other.matrix}, MuonOptions(2e-2).adjust_lr_fn("match_rms_adamw").weight_decay(0.05));
  torch::optim::AdamW adamw(
      {other.vector},
      torch::optim::AdamWOptions(2e-2).weight_decay(0.05).betas({0.8, 0.95}).eps(1e-6));
  for (int step = 0; step < 20; ++step) {
    const at::Tensor of_matrix = at::randn({6, 4}), of_vector = at::randn({5});
    own.set_gradients(of_matrix, of_vector);
    other.set_gradients(of_matrix, of_vector);
    both.step();
    muon.step();
    adamw.step();
    CHECK(at::equal(own.matrix, other.matrix));
    CHECK(at::allclose(own.vector, other.vector, 1e-6, 1e-7));
  }
}

TEST_CASE("muon with adamw: a vector in a group of Muon's is refused") {
  const at::Tensor vector = at::ones({3}).requires_grad_();
  vector.mutable_grad() = at::ones({3});
  MuonAdamW optimizer({vector});
  CHECK_THROWS_AS(optimizer.step(), UsageError);
  CHECK(optimizer.state().empty());
}

TEST_CASE("muon with adamw: a step that is refused changes nothing in any group") {
  const at::Tensor matrix = at::ones({2, 3}).requires_grad_(),
                   vector = at::ones({3}).requires_grad_();
  matrix.mutable_grad() = at::ones({2, 3});
  vector.mutable_grad() = at::ones({3});
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>{matrix});
  groups.emplace_back(std::vector<at::Tensor>{vector});
  MuonAdamW optimizer(groups);
  CHECK_THROWS_AS(optimizer.step(), UsageError);
  CHECK(matrix.eq(1).all().item<bool>());
  CHECK(optimizer.state().empty());
  // The first step of a group that AdamW updates counts as its first step and has the full bias
  // correction.
  static_cast<MuonAdamWOptions&>(optimizer.param_groups()[1].options()).use_muon(false);
  optimizer.step();
  const auto& state =
      static_cast<const ParamState&>(*optimizer.state().at(vector.unsafeGetTensorImpl()));
  CHECK(state.step == 1);
}

}  // namespace optim_muon_adamw_test
