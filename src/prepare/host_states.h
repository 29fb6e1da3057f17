// File: prepare/host_states.h (internal)
// Makes the step of an optimizer in host memory for parameters of a device. The states live in host
// memory, and so does a copy of the weights; a step copies each gradient to the host and each
// weight back, once. Copies of some parameters run while others are stepped.
//
//   HostStates host;
//   host.step(optimizer, parameters);  // those with gradients
//
// The optimizer has the copies as its parameters during the step, and their states under the
// addresses of the parameters themselves at all other times, so that checkpoints find them. Weights
// that something else has changed since are copied again, which version counters show: writes
// through data_ptr() or .data() are not noticed. Thread rule: that of the optimizer.
#pragma once

#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/host_copies.h"
#include "prepare/partial_step.h"

namespace hasten {

class HostStates {
 public:
  // `is_elsewhere` returns true for parameters that are not in host memory.
  explicit HostStates(std::function<bool(const at::Tensor&)> is_elsewhere = is_on_device)
      : is_elsewhere_(std::move(is_elsewhere)) {}
  void step(torch::optim::Optimizer& optimizer, const std::vector<at::Tensor>& parameters);

 private:
  // The copy of a parameter in host memory.
  struct Twin {
    at::Tensor host;
    std::int64_t version = -1;  // the version of the parameter when both were equal
    const void* data = nullptr;
    HostCopies::Sent gradient = {};  // on its way
  };

  // Sends the gradient of a parameter to the host.
  void begin(const at::Tensor& parameter);
  // Steps parameters that are here, and others whose gradients have been sent, at once.
  void finish(torch::optim::Optimizer& optimizer, const std::vector<at::Tensor>& here,
              const std::vector<at::Tensor>& elsewhere);
  // Steps the parameters elsewhere one after the other, while gradients of the next ones arrive.
  void step_apart(torch::optim::Optimizer& optimizer, const std::vector<at::Tensor>& here,
                  const std::vector<at::Tensor>& elsewhere);
  Twin& twin_of(const at::Tensor& parameter);
  HostCopies& copies_of(at::Device device);

  static bool is_on_device(const at::Tensor& parameter) { return !parameter.device().is_cpu(); }

  std::function<bool(const at::Tensor&)> is_elsewhere_;
  PartialStep partial_;
  std::unordered_map<const c10::TensorImpl*, Twin> twins_;
  std::unordered_map<at::Device, std::unique_ptr<HostCopies>> copies_;
};

}  // namespace hasten
