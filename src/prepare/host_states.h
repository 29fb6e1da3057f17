// File: prepare/host_states.h (internal)
// Runs the step of an optimizer in host memory for parameters on a device. The states and a copy of
// the weights are in host memory. A step copies each gradient to the host once, and each weight
// back once. Copies of some parameters run while others are stepped.
//
//   HostStates host;
//   host.step(optimizer, parameters);  // those with gradients
//
// During the step the optimizer has the copies as its parameters. At all other times the states are
// stored under the addresses of the parameters themselves, so that checkpoints find them. Weights
// that other code has changed since the last step are copied again. Version counters detect such
// changes, but not writes through data_ptr() or .data(). Thread rule: that of the optimizer.
#pragma once

#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/host_copier.h"
#include "prepare/partial_step.h"

namespace hasten {

class HostStates {
 public:
  // `needs_copy` returns true for parameters that are not in host memory.
  explicit HostStates(std::function<bool(const at::Tensor&)> needs_copy = is_on_device)
      : needs_copy_(std::move(needs_copy)) {}
  void step(torch::optim::Optimizer& optimizer, const std::vector<at::Tensor>& parameters);

 private:
  // The copy of a parameter in host memory.
  struct HostParameter {
    at::Tensor host;
    std::int64_t version = -1;  // the version of the parameter when both were equal
    const void* data = nullptr;
    HostCopier::HostCopy gradient = {};  // being copied
  };

  // Starts to copy the gradient of a parameter to the host.
  void start_gradient_copy(const at::Tensor& parameter);
  // Steps the parameters in `on_host` and in `on_device` in one step. The gradient copies of the
  // latter must have been started.
  void step_with_host_copies(torch::optim::Optimizer& optimizer,
                             const std::vector<at::Tensor>& on_host,
                             const std::vector<at::Tensor>& on_device);
  // Steps the parameters on the device one after the other, while the gradients of the next ones
  // are being copied.
  void step_one_by_one(torch::optim::Optimizer& optimizer, const std::vector<at::Tensor>& on_host,
                       const std::vector<at::Tensor>& on_device);
  HostParameter& host_parameter_of(const at::Tensor& parameter);
  HostCopier& copies_of(at::Device device);

  static bool is_on_device(const at::Tensor& parameter) { return !parameter.device().is_cpu(); }

  std::function<bool(const at::Tensor&)> needs_copy_;
  PartialStep partial_;
  std::unordered_map<const c10::TensorImpl*, HostParameter> host_parameters_;
  std::unordered_map<at::Device, std::unique_ptr<HostCopier>> copies_;
};

}  // namespace hasten
