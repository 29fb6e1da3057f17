#include "prepare/host_states.h"

#include <torch/torch.h>

#include "device/device.h"
#include "prepare/placement.h"

namespace hasten {
namespace {

using Optimizer = torch::optim::Optimizer;
using Tensors = std::vector<at::Tensor>;

// Moves the states of parameters to the addresses of their copies while it lives.
class OtherStates {
 public:
  OtherStates(Optimizer& optimizer, const Tensors& parameters, const Tensors& copies)
      : optimizer_(optimizer), parameters_(parameters), copies_(copies) {
    move(parameters_, copies_);
  }
  OtherStates(const OtherStates&) = delete;
  OtherStates& operator=(const OtherStates&) = delete;
  ~OtherStates() { move(copies_, parameters_); }

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

HostStates::Twin& HostStates::twin_of(const at::Tensor& parameter) {
  Twin& twin = twins_[parameter.unsafeGetTensorImpl()];
  const auto version = static_cast<std::int64_t>(parameter._version());
  if (twin.host.defined() && twin.version == version && twin.data == parameter.const_data_ptr())
    return twin;
  if (!twin.host.defined()) twin.host = host_memory_like(parameter);
  twin.host.copy_(parameter);
  return twin;
}

void HostStates::begin(const at::Tensor& parameter) {
  Twin& twin = twin_of(parameter);
  at::Tensor& gradient = twin.host.mutable_grad();
  const at::Tensor& given = parameter.grad();
  if (given.layout() != at::kStrided) {
    gradient = given.cpu();
    twin.wait_for_gradient = [] {};
    return;
  }
  gradient = host_memory_like(given);
  twin.wait_for_gradient = begin_copy_to_host(gradient, given);
}

void HostStates::finish(Optimizer& optimizer, const Tensors& parameters) {
  Tensors copies;
  for (const at::Tensor& parameter : parameters) {
    Twin& twin = twins_.at(parameter.unsafeGetTensorImpl());
    twin.wait_for_gradient();
    copies.push_back(twin.host);
    // A state that was loaded or begun on the device.
    const auto state = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (state != optimizer.state().end()) move_state(*state->second, at::kCPU);
  }
  {
    const OtherStates states(optimizer, parameters, copies);
    partial_.run(optimizer, parameters, copies);
  }
  for (const at::Tensor& parameter : parameters) {
    Twin& twin = twins_.at(parameter.unsafeGetTensorImpl());
    twin.host.mutable_grad().reset();
    parameter.copy_(twin.host, /*non_blocking=*/true);
    twin.version = static_cast<std::int64_t>(parameter._version());
    twin.data = parameter.const_data_ptr();
  }
}

void HostStates::step(Optimizer& optimizer, const Tensors& parameters) {
  const torch::NoGradGuard no_grad;
  Tensors here, elsewhere;
  for (const at::Tensor& parameter : parameters)
    (is_elsewhere_(parameter) ? elsewhere : here).push_back(parameter);
  const bool apart = steps_parameters_apart(optimizer);
  if (!here.empty()) partial_.run(optimizer, here, here);
  if (!apart) {
    for (const at::Tensor& parameter : elsewhere) begin(parameter);
    return finish(optimizer, elsewhere);
  }
  // So many gradients are on their way while one parameter is stepped.
  constexpr std::size_t kAhead = 8;
  for (std::size_t i = 0; i < elsewhere.size() + kAhead; ++i) {
    if (i < elsewhere.size()) begin(elsewhere[i]);
    if (i >= kAhead) finish(optimizer, {elsewhere[i - kAhead]});
  }
}

}  // namespace hasten
