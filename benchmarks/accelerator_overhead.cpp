// Measures what an Accelerator adds to the time of a step: runs the same training loop by hand and
// with prepared objects, in turn, and prints one JSON line.
//
//   $ accelerator_overhead [--steps N]
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "hasten/accelerator.h"
#include "hasten/optim/adamw.h"

namespace {

using Clock = std::chrono::steady_clock;
using namespace hasten;

struct Rows {
  at::Tensor data, target;
};

std::vector<Rows> batches_of(std::int64_t steps) {
  std::vector<Rows> out;
  for (std::int64_t i = 0; i < steps; ++i)
    out.push_back({at::randn({4, 8}), at::randint(0, 8, {4})});
  return out;
}

double microseconds_per_step(std::int64_t steps, Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count() /
         static_cast<double>(steps);
}

double time_plain_loop(const std::vector<Rows>& batches) {
  torch::nn::Linear net(8, 8);
  AdamW adamw(net->parameters());
  const auto start = Clock::now();
  for (const Rows& batch : batches) {
    adamw.zero_grad();
    torch::nn::functional::cross_entropy(net(batch.data), batch.target).backward();
    adamw.step();
  }
  return microseconds_per_step(static_cast<std::int64_t>(batches.size()), start);
}

double time_prepared_loop(std::vector<Rows>& batches, Accelerator& accelerator) {
  torch::nn::Linear net(8, 8);
  AdamW adamw(net->parameters());
  auto [model, optimizer, loader] = accelerator.prepare(net, adamw, batches);
  const auto start = Clock::now();
  for (auto& batch : loader) {
    optimizer.zero_grad();
    accelerator.backward(torch::nn::functional::cross_entropy(model(batch.data), batch.target));
    optimizer.step();
  }
  return microseconds_per_step(static_cast<std::int64_t>(batches.size()), start);
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t steps =
      argc > 2 && std::strcmp(argv[1], "--steps") == 0 ? std::atoll(argv[2]) : 2000;
  at::set_num_threads(1);
  auto batches = batches_of(steps);
  Accelerator accelerator({.cpu = true});
  std::vector<double> plain, with_accelerator, difference;
  for (int round = 0; round < 21; ++round) {
    plain.push_back(time_plain_loop(batches));
    with_accelerator.push_back(time_prepared_loop(batches, accelerator));
    difference.push_back(with_accelerator.back() - plain.back());
  }
  std::printf("{\"by_hand_us\": %.2f, \"prepared_us\": %.2f, \"difference_us\": %.2f}\n",
              median(plain), median(with_accelerator), median(difference));
}
