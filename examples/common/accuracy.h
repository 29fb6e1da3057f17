// Evaluates a prepared model in any number of processes.
#pragma once

#include <hasten/hasten.h>
#include <torch/torch.h>

struct Accuracy {
  double value = 0;
  std::int64_t rows = 0;  // each row is counted once
};

// Returns the accuracy over all rows of a prepared loader. The last step can be padded with further
// rows, which gather_for_metrics removes.
inline Accuracy measure_accuracy(hasten::Accelerator& accelerator, auto& model, auto& loader) {
  const torch::NoGradGuard no_grad;
  std::int64_t correct = 0, rows = 0;
  for (auto& batch : loader) {
    const at::Tensor hits =
        accelerator.gather_for_metrics(model(batch.data).argmax(1) == batch.target);
    correct += hits.sum().template item<std::int64_t>();
    rows += hits.size(0);
  }
  return {static_cast<double>(correct) / static_cast<double>(rows), rows};
}
