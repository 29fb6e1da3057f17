// The regression problem that Accelerate and the Hugging Face Trainer use in their tests:
// y = 2 x + 3 with noise, and a model with the weights a and b.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "hasten/accelerator.h"
#include "hasten/base/text.h"
#include "hasten/data/column_dataset.h"
#include "unit/prepare/multiprocess_checks.h"

namespace hasten::ported {

// The rows have the columns `x` and `y`, or other names.
inline ColumnDataset regression_rows(std::int64_t length, std::uint64_t seed = 42,
                                     const std::string& input = "x",
                                     const std::string& label = "y") {
  torch::Generator random = at::detail::createCPUGenerator(seed);
  const at::Tensor x = torch::randn({length}, random);
  return ColumnDataset({{input, x}, {label, 2 * x + 3 + 0.1 * torch::randn({length}, random)}});
}

struct RegressionModel : torch::nn::Module {
  explicit RegressionModel(double a = 0, double b = 0)
      : a(register_parameter("a", torch::tensor(a, at::kFloat))),
        b(register_parameter("b", torch::tensor(b, at::kFloat))) {}
  at::Tensor forward(const at::Tensor& x) { return x * a + b; }
  at::Tensor a, b;
};

inline at::Tensor mse(const at::Tensor& out, const at::Tensor& target) {
  return torch::nn::functional::mse_loss(out, target);
}

// The rows 0 to count - 1, as a map dataset and as a stream.
struct NumberRows {
  std::int64_t count;
  std::int64_t size() const { return count; }
  at::Tensor get(std::int64_t row) const { return torch::tensor(row); }
};
struct NumberStream {
  std::int64_t count;
  std::int64_t at = 0;
  std::optional<at::Tensor> next() {
    if (at == count) return std::nullopt;
    return torch::tensor(at++);
  }
  void rewind(std::int64_t) { at = 0; }
};

}  // namespace hasten::ported
