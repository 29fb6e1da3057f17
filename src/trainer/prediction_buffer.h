// File: trainer/prediction_buffer.h (internal)
// Collects predictions on their device and moves them to memory some batches at a time:
// TrainingArguments::eval_accumulation_steps.
//
//   PredictionBuffer logits(args.eval_accumulation_steps);
//   logits.add(of_batch);                                   // each batch
//   const std::vector<at::Tensor> all = logits.take();      // on the CPU, one a batch
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace hasten {

class PredictionBuffer {
 public:
  // At most `batches` batches stay on the device. If it is unset, all of them stay until take().
  explicit PredictionBuffer(std::optional<std::int64_t> batches, at::Device memory = at::kCPU)
      : batches_(batches), memory_(memory) {}

  void add(const at::Tensor& of_batch) {
    all_.push_back(of_batch);
    ++on_device_;
    if (batches_ && on_device_ >= *batches_) move();
  }
  const std::vector<at::Tensor>& tensors() const { return all_; }
  // Moves the rest to memory and returns one tensor for each batch.
  std::vector<at::Tensor> take() {
    move();
    return std::move(all_);
  }

 private:
  void move() {
    for (auto it = all_.end() - on_device_; it != all_.end(); ++it) *it = it->to(memory_);
    on_device_ = 0;
  }

  std::optional<std::int64_t> batches_;
  at::Device memory_;
  std::vector<at::Tensor> all_;
  // The number of tensors at the end of all_ that are still on the device.
  std::int64_t on_device_ = 0;
};

}  // namespace hasten
