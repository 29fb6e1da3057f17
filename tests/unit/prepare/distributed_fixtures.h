// A small model for tests of several processes, with its rows and its loss.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "unit/prepare/multiprocess_checks.h"

namespace hasten::distributed_fixtures {

using torch::nn::Linear;
using torch::nn::Sequential;

inline Sequential small_model() {
  torch::manual_seed(3);
  return Sequential(Linear(6, 8), torch::nn::Tanh(), Linear(8, 1));
}

inline at::Tensor rows_of(std::int64_t count) {
  torch::manual_seed(11);
  return torch::randn({count, 6});
}

inline at::Tensor loss_of(const at::Tensor& out) { return (out - 0.5).pow(2).mean(); }

inline constexpr std::int64_t kMicroBatchRows = 2;  // rows of a micro-batch

// Returns the rows of a process in one of its micro-batches, of at most 16.
inline at::Tensor own_rows(std::int64_t rank, std::int64_t micro_batch) {
  return rows_of(64).narrow(0, (2 * micro_batch + rank) * kMicroBatchRows, kMicroBatchRows);
}

inline std::vector<at::Tensor> gradients_in(const torch::nn::Module& module) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : module.parameters()) all.push_back(parameter.grad());
  return all;
}

struct Numbers {
  std::int64_t count;
  std::int64_t size() const { return count; }
  at::Tensor get(std::int64_t row) const { return torch::full({2}, row, at::kLong); }
};

}  // namespace hasten::distributed_fixtures
