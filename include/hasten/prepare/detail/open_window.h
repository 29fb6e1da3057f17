// File: hasten/prepare/detail/open_window.h
// The open accumulation windows of a process: the number of micro-batches so far, and the gradients
// that they have accumulated. A loop that stops inside a window saves them and continues later with
// the same bits.
//
//   OpenWindows open = accelerator.open_windows();
//   for (const OpenWindow& window : open.windows)
//     std::cout << window.micro_batches << " of " << window.capacity << " micro-batches\n";
//   save_safetensors(folder / "windows.safetensors", open.state_dict());   // a file of each process
//
//   OpenWindows saved;                                     // later, once the models are prepared
//   saved.load_state_dict(load_safetensors(folder / "windows.safetensors"));
//   accelerator.restore_windows(saved);
//
// Accelerator::save_state() keeps the windows by itself; these values are for programs that write
// their own checkpoints. Thread rule: values; the gradients share memory with the Accelerator's
// gradients, so save them before the next backward pass.
#pragma once

#include <cstdint>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/formats/detail/tensor_dict.h"

namespace hasten {

// The position in one window, in this process.
struct OpenWindow {
  // The models that were passed to accumulate(). Models are numbered in the order in which they
  // were prepared.
  std::vector<std::int64_t> models;
  // The micro-batches that have begun.
  std::int64_t micro_batches = 0;
  // The micro-batches of a full window: gradient_accumulation_steps. The last batch of a prepared
  // loader ends a window earlier.
  std::int64_t capacity = 1;
  // The micro-batches that had a backward pass.
  std::int64_t backward_passes = 0;
  // The rows of the micro-batches, without rows that only fill up a step. Batches of loaders that
  // do not know their rows, and micro-batches outside of a loop over a prepared loader, count 0.
  std::int64_t rows = 0;
  // The sum of the weights of the backward passes: 1 for each, or the `items` of backward().
  double weight = 0;
  // True from the last micro-batch until the optimizer's step. Such a window can be read, but
  // neither saved nor restored: the next micro-batch would begin a new window.
  bool awaits_step = false;

  bool operator==(const OpenWindow&) const = default;
};

// All open windows of a process. Without an open window there are no gradients.
struct HASTEN_API OpenWindows {
  std::vector<OpenWindow> windows;
  // The gradients of all prepared models, by the names of the parameters. Names in a second model
  // begin with "model_1.". A sparse gradient is stored as three tensors.
  TensorDict gradients;
  // The scale that the gradients are multiplied by; 1 without Precision::fp16.
  double loss_scale = 1;

  bool empty() const { return windows.empty(); }

  // Returns everything as named tensors, for a separate file or as a part of another one. Throws
  // UsageError "checkpoint.open-window" if a window waits for its step.
  TensorDict state_dict() const;
  // Restores the windows from such tensors. Throws DataError "checkpoint.window".
  void load_state_dict(const TensorDict& state);
};

}  // namespace hasten
