#include "ops/step_seeds.h"

#include <torch/torch.h>

#include <algorithm>
#include <atomic>

#include "device/device.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "ops/random.h"

namespace hasten::ops {
namespace {

// A BERT-large draws 73 in each micro-batch.
constexpr std::int64_t kMaxSeeds = 16384;

std::atomic<StepSeeds*> recorded_seeds = nullptr;

at::Tensor generator_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_generator_state(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

at::Tensor draw_seeds(std::int64_t count) {
  at::Tensor seeds = at::empty({count}, at::kLong);
  auto* const numbers = seeds.mutable_data_ptr<std::int64_t>();
  std::generate_n(numbers, count, [] { return static_cast<std::int64_t>(next_seed()); });
  return seeds;
}

}  // namespace

StepSeeds::Recording::Recording(StepSeeds& seeds) : seeds_(seeds), before_(generator_state()) {
  seeds_.slots_ = at::zeros({kMaxSeeds}, at::TensorOptions(seeds_.device_).dtype(at::kLong));
  seeds_.slot_indices_.clear();
  seeds_.count_ = 0;
  const at::Tensor next = draw_seeds(kMaxSeeds);
  set_generator_state(before_);
  const auto* const numbers = next.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < kMaxSeeds; ++i) seeds_.slot_indices_.emplace(numbers[i], i);
  recorded_seeds = &seeds_;
}

StepSeeds::Recording::~Recording() {
  recorded_seeds = nullptr;
  seeds_.slot_indices_.clear();
  set_generator_state(before_);
}

void StepSeeds::Recording::check_draws() const {
  const at::Tensor after = generator_state();
  set_generator_state(before_);
  (void)draw_seeds(seeds_.count_);
  const bool drew_seeds_only = at::equal(generator_state(), after);
  set_generator_state(after);
  if (drew_seeds_only) return;
  throw UsageError("device.graph", {.what = "a step in a CUDA graph",
                                    .got = "random numbers that are drawn on the host",
                                    .expected = "random numbers of the GPU",
                                    .hint = "draw them on the device of the model"});
}

void StepSeeds::draw() {
  if (count_ == 0) return;
  at::Tensor seeds = draw_seeds(count_);
  if (device_of(device_).traits().copies_from_pinned_memory) seeds = seeds.pin_memory();
  slots_.narrow(0, 0, count_).copy_(seeds, /*non_blocking=*/true);
}

std::optional<at::Tensor> StepSeeds::recorded_slot_of(std::int64_t seed) {
  StepSeeds* const seeds = recorded_seeds;
  return seeds == nullptr ? std::nullopt : std::optional(seeds->slot_of(seed));
}

at::Tensor StepSeeds::slot_of(std::int64_t seed) {
  const auto found = slot_indices_.find(seed);
  if (found == slot_indices_.end()) {
    throw UsageError("device.graph",
                     {.what = "a step in a CUDA graph",
                      .got = str("a seed of dropout that is not among the next ", kMaxSeeds,
                                 " of the default CPU generator"),
                      .expected = "at most this number, and no other random numbers of the host",
                      .hint = "leave out cuda_graph"});
  }
  count_ = std::max(count_, found->second + 1);
  return slots_.select(0, found->second);
}

}  // namespace hasten::ops
