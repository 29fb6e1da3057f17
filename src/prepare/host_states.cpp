#include "prepare/host_states.h"

#include <torch/torch.h>

#include "device/device.h"
#include "device/host_traffic.h"
#include "hasten/optim/gradients.h"
#include "prepare/placement.h"

namespace hasten {
namespace {

using Optimizer = torch::optim::Optimizer;
using Tensors = std::vector<at::Tensor>;

// During its lifetime, the states of the parameters are stored under the addresses of their copies.
class StateKeysScope {
 public:
  StateKeysScope(Optimizer& optimizer, const Tensors& parameters, const Tensors& copies)
      : optimizer_(optimizer), parameters_(parameters), copies_(copies) {
    move(parameters_, copies_);
  }
  StateKeysScope(const StateKeysScope&) = delete;
  StateKeysScope& operator=(const StateKeysScope&) = delete;
  ~StateKeysScope() { move(copies_, parameters_); }

 private:
  void move(const Tensors& from, const Tensors& to) {
    auto& states = optimizer_.state();
    for (std::size_t i = 0; i < from.size(); ++i) {
      const auto found = states.find(from[i].unsafeGetTensorImpl());
      if (found == states.end()) continue;
      auto state = std::move(found->second);
      states.erase(found);
      states[to[i].unsafeGetTensorImpl()] = std::move(state);
    }
  }

  Optimizer& optimizer_;
  const Tensors &parameters_, &copies_;
};

at::Tensor host_memory_like(const at::Tensor& x) {
  return at::empty_like(x, x.options().device(at::kCPU).pinned_memory(is_pinning_useful()));
}

}  // namespace

HostStates::HostParameter& HostStates::host_parameter_of(const at::Tensor& parameter) {
  HostParameter& host_parameter = host_parameters_[parameter.unsafeGetTensorImpl()];
  const auto version = static_cast<std::int64_t>(parameter._version());
  // A conversion changes the type of a parameter, and a different parameter may get its address.
  const bool fits = host_parameter.host.defined() &&
                    host_parameter.host.sizes() == parameter.sizes() &&
                    host_parameter.host.scalar_type() == parameter.scalar_type();
  if (fits && host_parameter.version == version &&
      host_parameter.data == parameter.const_data_ptr())
    return host_parameter;
  if (!fits) host_parameter.host = host_memory_like(parameter);
  host_parameter.host.copy_(parameter);
  return host_parameter;
}

HostCopier& HostStates::copies_of(at::Device device) {
  std::unique_ptr<HostCopier>& copies = copies_[device];
  if (!copies) copies = make_host_copier(device);
  return *copies;
}

void HostStates::start_gradient_copy(const at::Tensor& parameter) {
  HostParameter& host_parameter = host_parameter_of(parameter);
  const at::Tensor& given = parameter.grad();
  if (given.layout() != at::kStrided) {
    host_parameter.gradient = {.tensor = given.cpu(), .wait = [] {}};
  } else {
    const at::Tensor dense = given.is_non_overlapping_and_dense() ? given : given.contiguous();
    HostTraffic::count_to_host(HostTraffic::Purpose::optimizer_states, dense);
    host_parameter.gradient = copies_of(given.device()).to_host(dense);
  }
}

void HostStates::step_with_host_copies(Optimizer& optimizer, const Tensors& on_host,
                                       const Tensors& on_device) {
  Tensors some = on_host, replacements = on_host, copies;
  for (const at::Tensor& parameter : on_device) {
    HostParameter& host_parameter = host_parameters_.at(parameter.unsafeGetTensorImpl());
    host_parameter.gradient.wait();
    host_parameter.host.mutable_grad() = std::exchange(host_parameter.gradient, {}).tensor;
    copies.push_back(host_parameter.host);
    // The state may have been loaded or created on the device.
    const auto state = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (state != optimizer.state().end()) move_state(*state->second, at::kCPU);
  }
  some.insert(some.end(), on_device.begin(), on_device.end());
  replacements.insert(replacements.end(), copies.begin(), copies.end());
  {
    const StateKeysScope states(optimizer, on_device, copies);
    partial_.run(optimizer, some, replacements);
  }
  for (const at::Tensor& parameter : on_device) {
    HostParameter& host_parameter = host_parameters_.at(parameter.unsafeGetTensorImpl());
    host_parameter.host.mutable_grad().reset();
    parameter.copy_(host_parameter.host, /*non_blocking=*/true);
    HostTraffic::count_to_device(HostTraffic::Purpose::optimizer_states, parameter);
    host_parameter.version = static_cast<std::int64_t>(parameter._version());
    host_parameter.data = parameter.const_data_ptr();
  }
}

void HostStates::step_one_by_one(Optimizer& optimizer, const Tensors& on_host,
                                 const Tensors& on_device) {
  // For the optimizer each part is a step, after which it forgets the factor of the gradients.
  auto* const scaled = dynamic_cast<GradientScalingOptimizer*>(&optimizer);
  const double scale = scaled == nullptr ? 1 : scaled->scale_of_next_step().read();
  const auto step_part = [&](const Tensors& host_part, const Tensors& device_part) {
    if (scaled != nullptr) scaled->scale_next_step(scale);
    step_with_host_copies(optimizer, host_part, device_part);
  };
  if (!on_host.empty()) step_part(on_host, {});
  // The number of gradients that are being copied while one parameter is stepped.
  constexpr std::size_t kPrefetchCount = 8;
  for (std::size_t i = 0; i < on_device.size() + kPrefetchCount; ++i) {
    if (i < on_device.size()) start_gradient_copy(on_device[i]);
    if (i >= kPrefetchCount) step_part({}, {on_device[i - kPrefetchCount]});
  }
}

void HostStates::step(Optimizer& optimizer, const Tensors& parameters) {
  const torch::NoGradGuard no_grad;
  Tensors on_host, on_device;
  for (const at::Tensor& parameter : parameters)
    (needs_copy_(parameter) ? on_device : on_host).push_back(parameter);
  if (parameters.empty()) return;
  if (!on_device.empty() && steps_parameters_independently(optimizer))
    return step_one_by_one(optimizer, on_host, on_device);
  for (const at::Tensor& parameter : on_device) start_gradient_copy(parameter);
  step_with_host_copies(optimizer, on_host, on_device);
}

}  // namespace hasten
