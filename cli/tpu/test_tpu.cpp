// Checks that each rank can compute on its TPU chip. Runs only if TPUs were requested.
#include <torch/torch.h>

#include <cstdlib>

#include "base/seconds.h"
#include "hasten/base/text.h"
#include "hasten/options/detail/environment.h"
#include "test_checks.h"
#include "tpu/device/opened_tpu.h"

namespace hasten::cli {
namespace {

// Uses whole numbers, so that the TPU's sums are exact in any order and with bf16 products.
Json product(RankContext& rank) {
  const auto began = std::chrono::steady_clock::now();
  const at::Device tpu = tpu_device_of(rank.worker, TpuJob::separate_chips);
  const double seconds = seconds_since(began);
  const at::Tensor a = (at::arange(64 * 64) % 7).reshape({64, 64}).to(at::kFloat);
  const at::Tensor expected = a.mm(a), got = a.to(tpu).mm(a.to(tpu)).cpu();
  if (!at::equal(got, expected))
    throw CheckFailed("a matrix product on the TPU",
                      str("a difference of ", (got - expected).abs().max().item<float>()),
                      "the numbers of the CPU");
  const char* const chip = std::getenv("TPU_VISIBLE_DEVICES");
  return {{"chip", chip == nullptr ? "0" : chip}, {"seconds", seconds}};
}

CheckOutcome evaluate_product(RankContext&, const std::vector<Json>& facts) {
  return {str("chip ", values_of(facts, "chip"), ", open after ",
              fixed(max_value(facts, "seconds"), 1), " s; a matrix product equals the CPU's"),
          {{"chips", values_of(facts, "chip")}}};
}

}  // namespace

std::vector<Check> checks_of_tpus() {
  if (!config::environment_flag(config::whole_environment(), "ACCELERATE_USE_TPU").value_or(false))
    return {};
  return {{"tpu", product, evaluate_product}};
}

}  // namespace hasten::cli
