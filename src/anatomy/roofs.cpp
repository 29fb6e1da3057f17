#include "hasten/anatomy/detail/roofs.h"

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/seconds.h"
#include "hasten/ops/ops.h"
#include "hasten/prepare/detail/autocast.h"

namespace hasten::anatomy {
namespace {

// Returns the seconds of one call: the median of the faster half of the calls in about 0.1 s.
template <class Call>
double seconds_of_call(Call call) {
  using Clock = std::chrono::steady_clock;
  call();
  std::vector<double> times;
  const auto end = Clock::now() + std::chrono::milliseconds(100);
  while (times.size() < 3 || Clock::now() < end) {
    const auto before = Clock::now();
    call();
    times.push_back(seconds_since(before));
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 4];
}

}  // namespace

Roofs measure_roofs() {
  const torch::NoGradGuard no_grad;
  constexpr std::int64_t kSize = 1024;
  constexpr double kFlops = 2.0 * kSize * kSize * kSize;
  Roofs roofs;
  const at::Tensor a = at::ones({kSize, kSize}), b = at::ones({kSize, kSize});
  roofs.flops_per_second = kFlops / seconds_of_call([&] { ops::linear(a, b, {}); });
  const auto measure = [&](at::ScalarType type) {
    const at::Tensor low = a.to(type);
    return kFlops / seconds_of_call([&] { at::mm(low, low); });
  };
  if (bf16_is_fast(at::kCPU)) roofs.bf16_flops_per_second = measure(at::kBFloat16);
  if (fp16_is_fast(at::kCPU)) roofs.fp16_flops_per_second = measure(at::kHalf);
  const at::Tensor from = at::ones({32 << 20});
  at::Tensor to = at::empty_like(from);
  roofs.bytes_per_second =
      2.0 * static_cast<double>(from.nbytes()) / seconds_of_call([&] { to.copy_(from); });
  return roofs;
}

}  // namespace hasten::anatomy
