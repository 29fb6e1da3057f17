// File: anatomy/step_mark.h (internal)
// A position in a step, given by its autograd nodes and gradients, and the explanation of a failure
// at such a position.
//
//   const StepMark mark(parameters);                       // before the step
//   ... the step fails ...
//   explain_failure(step, mark, requested_bytes(error));   // "memory runs out in ..."
//
// Thread rule: the thread that runs the step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "hasten/anatomy/out_of_memory.h"

namespace hasten::anatomy {

// The progress of a step since its mark.
struct StepProgress {
  std::int64_t nodes = 0;      // autograd nodes created on this thread
  std::int64_t gradients = 0;  // parameters with a changed gradient
  friend bool operator==(const StepProgress&, const StepProgress&) = default;
};

class StepMark {
 public:
  // Sets the mark. The parameters must outlive the object.
  explicit StepMark(const std::vector<at::Tensor>& parameters);

  StepProgress progress() const;
  // Returns whether the step may have reached this position. On another thread, such as the one
  // that runs a GPU's backward pass, only the gradients are compared: LibTorch counts nodes for
  // each thread.
  bool may_have_reached(const StepProgress& progress) const;
  // Drops the gradients that did not exist at the mark.
  void drop_new_gradients() const;

 private:
  struct Gradient {
    const void* tensor = nullptr;
    std::uint32_t version = 0;
    friend bool operator==(const Gradient&, const Gradient&) = default;
  };
  static Gradient gradient_of(const at::Tensor& parameter);

  std::int64_t changed_gradients() const;

  const std::vector<at::Tensor>* parameters_;
  std::thread::id thread_ = std::this_thread::get_id();
  std::int64_t first_node_;
  std::vector<Gradient> gradients_;
};

// The bytes of the allocation that failed. LibTorch's message about a GPU shows the size of the
// segment that the allocator requested from the device, with two decimals.
struct RequestedBytes {
  double bytes = 0;  // 0 means unknown
  double error = 0;  // the rounding error of the number in the message
  bool is_segment = false;
  // Returns whether an allocation of `actual` bytes would give this message.
  bool matches(std::int64_t actual) const;
};
RequestedBytes requested_bytes(const std::exception& error);

// Sentences about the failure and what would have fitted. They are empty if there is no
// explanation. Making them runs dry runs in forks of this process.
struct FailureText {
  std::string place;  // "memory runs out in the backward pass, in aten::mm of ..."
  std::string fits;   // "batches of 24 rows would have fitted"; empty if unknown
};
FailureText explain_failure(const ExplainableStep& step, const StepMark& mark,
                            const RequestedBytes& requested);

}  // namespace hasten::anatomy
