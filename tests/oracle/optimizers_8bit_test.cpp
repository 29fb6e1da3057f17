// AdamW8bit and Lion8bit give the same bits as the published algorithm in numpy, and nearly the
// weights of bitsandbytes' optimizers (generate_8bit_optimizers.py). They run on tested::device().
// A GPU rounds some sums differently, so a few codes there may be those of the neighbouring number.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <string>

#include "device.h"
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

// The share of numbers that may differ on a device that rounds differently.
double share_of_differences() { return tested::device().is_cpu() ? 0 : 0.01; }

// Checks the codes of a moment, the scales of its blocks, or the weights. On the CPU every bit is
// compared.
void check_numbers(const at::Tensor& tensor, const at::Tensor& expected) {
  const at::Tensor found = tensor.detach().cpu();
  if (tested::device().is_cpu()) {
    REQUIRE(found.equal(expected));
    return;
  }
  REQUIRE(found.sizes() == expected.sizes());
  const at::Tensor a = found.to(at::kDouble), b = expected.to(at::kDouble);
  const at::Tensor differs = (a - b).abs() > 1e-5 * (b.abs() + b.abs().mean());
  CHECK(differs.sum().item<double>() <=
        share_of_differences() * static_cast<double>(expected.numel()));
}

}  // namespace

TEST_CASE("oracle: 8-bit optimizers have the bits of the published algorithm at every step") {
  const TensorDict oracle =
      load_safetensors(tested::folder() / "oracle/data/optimizers_8bit.safetensors");
  for (const EightBitCase& test : kEightBitCases) {
    CAPTURE(test.name);
    const at::Tensor weights =
        numbers(test.count, 1000, 13).to(tested::device(), test.type).requires_grad_();
    const OptimizerPointer optimizer = test.make(weights);
    for (std::int64_t step = 0; step < 4; ++step) {
      CAPTURE(step);
      weights.mutable_grad() =
          numbers(test.count, static_cast<std::uint64_t>(step) + 1, test.spread)
              .to(tested::device(), test.type);
      optimizer->step();
      const auto& state =
          static_cast<const ParamState&>(*optimizer->state().at(weights.unsafeGetTensorImpl()));
      for (const auto& [member, name] :
           {std::pair{"exp_avg", "codes"}, std::pair{"exp_avg_scale", "scales"},
            std::pair{"exp_avg_sq", "codes_sq"}, std::pair{"exp_avg_sq_scale", "scales_sq"}}) {
        const auto expected = oracle.find(test.name + "." + name);
        if (expected == oracle.end()) continue;
        check_numbers(state.tensors.at(member), expected->second[step]);
      }
    }
    check_numbers(weights.to(at::kFloat), oracle.at(test.name + ".weights"));
    const auto other = oracle.find(test.name + ".bitsandbytes");
    if (other == oracle.end()) continue;
    // bitsandbytes' CPU build encodes small numbers of a moment differently (see the generator).
    const at::Tensor error = (weights.detach().cpu() - other->second).abs();
    const double allowed = share_of_differences() * static_cast<double>(test.count);
    CHECK(error.gt(1e-6).sum().item<double>() <= (test.name == "adamw_even" ? 60 : 0) + allowed);
    CHECK(error.mean().item<double>() < 1e-4);
  }
}

}  // namespace oracle_optimizers_8bit_test
