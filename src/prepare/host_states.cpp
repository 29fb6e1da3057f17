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
  // A conversion changes the type of a parameter, and a different parameter may get its address.
  const bool fits = twin.host.defined() && twin.host.sizes() == parameter.sizes() &&
                    twin.host.scalar_type() == parameter.scalar_type();
  if (fits && twin.version == version && twin.data == parameter.const_data_ptr()) return twin;
  if (!fits) twin.host = host_memory_like(parameter);
  twin.host.copy_(parameter);
  return twin;
}

HostCopies& HostStates::copies_of(at::Device device) {
  std::unique_ptr<HostCopies>& copies = copies_[device];
  if (!copies) copies = make_host_copies(device);
  return *copies;
}

void HostStates::begin(const at::Tensor& parameter) {
  Twin& twin = twin_of(parameter);
  const at::Tensor& given = parameter.grad();
  if (given.layout() != at::kStrided) {
    twin.gradient = {.tensor = given.cpu(), .wait = [] {}};
  } else {
    const at::Tensor dense = given.is_non_overlapping_and_dense() ? given : given.contiguous();
    HostTraffic::count_to_host(HostTraffic::Purpose::optimizer_states, dense);
    twin.gradient = copies_of(given.device()).to_host(dense);
  }
}

void HostStates::finish(Optimizer& optimizer, const Tensors& here, const Tensors& elsewhere) {
  Tensors some = here, instead = here, copies;
  for (const at::Tensor& parameter : elsewhere) {
    Twin& twin = twins_.at(parameter.unsafeGetTensorImpl());
    twin.gradient.wait();
    twin.host.mutable_grad() = std::exchange(twin.gradient, {}).tensor;
    copies.push_back(twin.host);
    // The state may have been loaded or created on the device.
    const auto state = optimizer.state().find(parameter.unsafeGetTensorImpl());
    if (state != optimizer.state().end()) move_state(*state->second, at::kCPU);
  }
  some.insert(some.end(), elsewhere.begin(), elsewhere.end());
  instead.insert(instead.end(), copies.begin(), copies.end());
  {
    const OtherStates states(optimizer, elsewhere, copies);
    partial_.run(optimizer, some, instead);
  }
  for (const at::Tensor& parameter : elsewhere) {
    Twin& twin = twins_.at(parameter.unsafeGetTensorImpl());
    twin.host.mutable_grad().reset();
    parameter.copy_(twin.host, /*non_blocking=*/true);
    HostTraffic::count_to_device(HostTraffic::Purpose::optimizer_states, parameter);
    twin.version = static_cast<std::int64_t>(parameter._version());
    twin.data = parameter.const_data_ptr();
  }
}

void HostStates::step_apart(Optimizer& optimizer, const Tensors& here, const Tensors& elsewhere) {
  // For the optimizer each part is a step, after which it forgets the factor of the gradients.
  auto* const scaled = dynamic_cast<ScalesGradients*>(&optimizer);
  const double scale = scaled == nullptr ? 1 : scaled->scale_of_next_step().read();
  const auto step_part = [&](const Tensors& here_too, const Tensors& there) {
    if (scaled != nullptr) scaled->scale_next_step(scale);
    finish(optimizer, here_too, there);
  };
  if (!here.empty()) step_part(here, {});
  // The number of gradients that are being copied while one parameter is stepped.
  constexpr std::size_t kAhead = 8;
  for (std::size_t i = 0; i < elsewhere.size() + kAhead; ++i) {
    if (i < elsewhere.size()) begin(elsewhere[i]);
    if (i >= kAhead) step_part({}, {elsewhere[i - kAhead]});
  }
}

void HostStates::step(Optimizer& optimizer, const Tensors& parameters) {
  const torch::NoGradGuard no_grad;
  Tensors here, elsewhere;
  for (const at::Tensor& parameter : parameters)
    (is_elsewhere_(parameter) ? elsewhere : here).push_back(parameter);
  if (parameters.empty()) return;
  if (!elsewhere.empty() && steps_parameters_apart(optimizer))
    return step_apart(optimizer, here, elsewhere);
  for (const at::Tensor& parameter : elsewhere) begin(parameter);
  finish(optimizer, here, elsewhere);
}

}  // namespace hasten
