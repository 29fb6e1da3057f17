// AdamW8bit and Lion8bit give the same bits as the published algorithm in numpy, and nearly the
// weights of bitsandbytes' optimizers (generate_8bit_optimizers.py).
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <string>

#include "hasten/formats/safetensors.h"
#include "hasten/optim/detail/adamw_8bit.h"
#include "hasten/optim/detail/lion_8bit.h"

namespace oracle_optimizers_8bit_test {

using namespace hasten;

namespace {

using Optimizer = torch::optim::Optimizer;
using OptimizerPointer = std::unique_ptr<Optimizer>;

// The same function is in the generator.
at::Tensor numbers(std::int64_t count, std::uint64_t salt, std::uint64_t spread) {
  at::Tensor out = at::empty({count});
  auto* const to = out.mutable_data_ptr<float>();
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(count); ++i) {
    const std::uint64_t mixed = (i * 2654435761u + salt * 40503u + (i >> 3)) % (1ull << 32);
    const auto whole = static_cast<std::int64_t>(mixed >> 8) - (1 << 23);
    to[i] = std::ldexp(static_cast<float>(whole), -24 - static_cast<int>(mixed % spread));
  }
  return out;
}

struct EightBitCase {
  std::string name;
  std::function<OptimizerPointer(const at::Tensor&)> make;
  at::ScalarType type = at::kFloat;
  std::int64_t count = 4100;
  std::uint64_t spread = 13;
};

OptimizerPointer adamw_with(const at::Tensor& weights, std::int64_t bits) {
  return std::make_unique<AdamW8bit>(
      std::vector<at::Tensor>{weights},
      AdamW8bitOptions(0.01).betas({0.9, 0.99}).eps(1e-6).bits(bits).weight_decay(0.1));
}
OptimizerPointer adamw_8(const at::Tensor& weights) { return adamw_with(weights, 8); }
OptimizerPointer adamw_32(const at::Tensor& weights) { return adamw_with(weights, 32); }
OptimizerPointer lion_8(const at::Tensor& weights) {
  return std::make_unique<Lion8bit>(std::vector<at::Tensor>{weights},
                                    Lion8bitOptions(0.01).betas({0.9, 0.99}).weight_decay(0.1));
}

const std::vector<EightBitCase> kEightBitCases = {
    {"adamw", adamw_8},
    {.name = "adamw_even", .make = adamw_8, .spread = 1},
    {"adamw_bfloat16", adamw_8, at::kBFloat16},
    {"adamw_32", adamw_32},
    {.name = "adamw_small", .make = adamw_8, .count = 300},
    {"lion", lion_8},
    {"lion_bfloat16", lion_8, at::kBFloat16}};

}  // namespace

TEST_CASE("oracle: 8-bit optimizers have the bits of the published algorithm at every step") {
  const TensorDict oracle =
      load_safetensors(std::string(HASTEN_TEST_DATA) + "/oracle/data/optimizers_8bit.safetensors");
  for (const EightBitCase& test : kEightBitCases) {
    CAPTURE(test.name);
    const at::Tensor weights = numbers(test.count, 1000, 13).to(test.type).requires_grad_();
    const OptimizerPointer optimizer = test.make(weights);
    for (std::int64_t step = 0; step < 4; ++step) {
      CAPTURE(step);
      weights.mutable_grad() =
          numbers(test.count, static_cast<std::uint64_t>(step) + 1, test.spread).to(test.type);
      optimizer->step();
      const auto& state =
          static_cast<const ParamState&>(*optimizer->state().at(weights.unsafeGetTensorImpl()));
      for (const auto& [member, name] :
           {std::pair{"exp_avg", "codes"}, std::pair{"exp_avg_scale", "scales"},
            std::pair{"exp_avg_sq", "codes_sq"}, std::pair{"exp_avg_sq_scale", "scales_sq"}}) {
        const auto expected = oracle.find(test.name + "." + name);
        if (expected == oracle.end()) continue;
        REQUIRE(state.tensors.at(member).equal(expected->second[step]));
      }
    }
    REQUIRE(weights.detach().to(at::kFloat).equal(oracle.at(test.name + ".weights")));
    const auto other = oracle.find(test.name + ".bitsandbytes");
    if (other == oracle.end()) continue;
    // bitsandbytes' CPU build encodes small numbers of a moment differently (see the generator).
    const at::Tensor error = (weights.detach() - other->second).abs();
    CHECK(error.gt(1e-6).sum().item<std::int64_t>() <= (test.name == "adamw_even" ? 60 : 0));
    CHECK(error.mean().item<double>() < 1e-4);
  }
}

}  // namespace oracle_optimizers_8bit_test
