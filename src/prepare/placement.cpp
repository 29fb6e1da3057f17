#include "prepare/placement.h"

#include <torch/csrc/autograd/variable.h>
#include <torch/torch.h>

#include <functional>
#include <map>
#include <tuple>
#include <typeinfo>
#include <utility>
#include <vector>

#include "device/device.h"
#include "hasten/optim/stateful_optimizer.h"
#include "hasten/prepare/detail/convert_weights.h"

namespace hasten {
namespace {

using torch::optim::OptimizerParamState;
using Tensors = std::vector<at::Tensor>;

// Drops the gradient accumulator, because it would expect gradients on the tensor's old device.
void reset_gradient_accumulator(const at::Tensor& tensor) {
  auto* const meta = torch::autograd::impl::get_autograd_meta(tensor);
  if (meta == nullptr) return;
  const std::lock_guard lock(meta->mutex_);
  meta->grad_accumulator_.reset();
}

// Does the same as Tensor::set_data. That function refuses tensors of backends outside of LibTorch,
// such as `tpu`, although they have the same class.
void set_data_in_place(const at::Tensor& tensor, const at::Tensor& moved) {
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const c10::TensorImpl& other = *moved.unsafeGetTensorImpl();
  TORCH_CHECK(typeid(impl) == typeid(other), "a tensor has a different class on ", moved.device());
  reset_gradient_accumulator(tensor);
  impl.shallow_copy_from(moved.getIntrusivePtr());
}

// Changes the device and the type of tensors. Tensors that share memory still share it afterwards.
class TensorMover {
 public:
  using Type = std::function<at::ScalarType(const at::Tensor&)>;
  TensorMover(at::Device device, Type type) : device_(device), type_(std::move(type)) {}

  void move(const at::Tensor& tensor) {
    if (!tensor.defined() || (tensor.device() == device_ && type_(tensor) == tensor.scalar_type()))
      return;
    if (!tensor.has_storage()) return set_data_in_place(tensor, copy_on_device(tensor));
    // The weak pointer keeps the address from being reused, but does not keep the data alive.
    c10::weak_intrusive_ptr<c10::StorageImpl> before(tensor.storage().getWeakStorageImpl());
    const TensorMemory memory = {tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset(),
                                 tensor.sizes().vec(), tensor.strides().vec()};
    const auto known = moved_.find(memory);
    if (known != moved_.end()) return set_data_in_place(tensor, known->second.on_device);
    const at::Tensor on_device = copy_on_device(tensor);
    set_data_in_place(tensor, on_device);
    moved_.emplace(memory, MovedTensor{.before = std::move(before), .on_device = on_device});
  }

 private:
  at::Tensor copy_on_device(const at::Tensor& tensor) const {
    return tensor.detach().to(device_, type_(tensor));
  }

  // Identifies the memory of a tensor: storage, offset, sizes and strides.
  using TensorMemory =
      std::tuple<const void*, std::int64_t, std::vector<std::int64_t>, std::vector<std::int64_t>>;
  struct MovedTensor {
    c10::weak_intrusive_ptr<c10::StorageImpl> before;
    at::Tensor on_device;
  };

  at::Device device_;
  Type type_;
  std::map<TensorMemory, MovedTensor> moved_;
};

Tensors tensors_of(const torch::optim::AdamWParamState& state) {
  return {state.exp_avg(), state.exp_avg_sq(), state.max_exp_avg_sq()};
}
Tensors tensors_of(const torch::optim::AdamParamState& state) {
  return {state.exp_avg(), state.exp_avg_sq(), state.max_exp_avg_sq()};
}
Tensors tensors_of(const torch::optim::SGDParamState& state) { return {state.momentum_buffer()}; }
Tensors tensors_of(const torch::optim::AdagradParamState& state) { return {state.sum()}; }
Tensors tensors_of(const torch::optim::RMSpropParamState& state) {
  return {state.square_avg(), state.momentum_buffer(), state.grad_avg()};
}
Tensors tensors_of(const torch::optim::LBFGSParamState& state) {
  Tensors all = {state.d(), state.H_diag(), state.prev_flat_grad()};
  for (const auto* queue : {&state.old_dirs(), &state.old_stps(), &state.ro()})
    all.insert(all.end(), queue->begin(), queue->end());
  if (state.al()) all.insert(all.end(), state.al()->begin(), state.al()->end());
  return all;
}

Tensors tensors_of(const ParamState& state) {
  Tensors all;
  for (const auto& [name, tensor] : state.tensors) all.push_back(tensor);
  return all;
}

template <class... Kinds>
Tensors tensors_by_kind(const OptimizerParamState& state) {
  Tensors all;
  const auto try_kind = [&]<class Kind>(const Kind* as) {
    if (as != nullptr) all = tensors_of(*as);
  };
  (try_kind(dynamic_cast<const Kinds*>(&state)), ...);
  return all;
}

TensorMover::Type type_of_doubles(std::optional<at::ScalarType> type) {
  return [type](const at::Tensor& tensor) {
    return type && tensor.scalar_type() == at::kDouble ? *type : tensor.scalar_type();
  };
}

void move_all(torch::nn::Module& module, TensorMover& mover) {
  for (const at::Tensor& parameter : module.parameters()) {
    mover.move(parameter);
    if (parameter.is_leaf()) mover.move(parameter.grad());
  }
  for (const at::Tensor& buffer : module.buffers()) mover.move(buffer);
}

}  // namespace

std::vector<at::Tensor> state_tensors(const OptimizerParamState& state) {
  using namespace torch::optim;
  return tensors_by_kind<AdamWParamState, AdamParamState, SGDParamState, AdagradParamState,
                         RMSpropParamState, LBFGSParamState, ParamState>(state);
}

void move_to_device(torch::nn::Module& module, at::Device device,
                    std::optional<at::ScalarType> double_type_on_device) {
  const auto is_on_device = [&](const at::Tensor& tensor) { return tensor.device() == device; };
  const std::vector<at::Tensor> parameters = module.parameters();
  // All parameters of a module are on one device, so checking the first one is enough.
  if (device.is_cpu()) {
    if (!parameters.empty() && !is_on_device(parameters.front())) module.to(device);
    return;
  }
  // LibTorch moves modules only to its own device types.
  if (device_of(device).traits().is_built_in) {
    module.to(device);
  } else {
    move_module(module, device, double_type_on_device);
  }
}

void move_module(torch::nn::Module& module, at::Device device,
                 std::optional<at::ScalarType> double_type_on_device) {
  TensorMover mover(device, type_of_doubles(double_type_on_device));
  move_all(module, mover);
}

void convert_weights(torch::nn::Module& module, at::ScalarType type) {
  const auto type_of = [type](const at::Tensor& tensor) {
    return tensor.is_floating_point() ? type : tensor.scalar_type();
  };
  const std::vector<at::Tensor> parameters = module.parameters();
  if (parameters.empty()) return;
  TensorMover mover(parameters.front().device(), type_of);
  move_all(module, mover);
}

void move_state(torch::optim::Optimizer& optimizer, at::Device device,
                std::optional<at::ScalarType> double_type_on_device) {
  TensorMover mover(device, type_of_doubles(double_type_on_device));
  for (const auto& [parameter, state] : optimizer.state()) {
    for (const at::Tensor& part : state_tensors(*state)) mover.move(part);
  }
}

void move_state(const OptimizerParamState& state, at::Device device) {
  TensorMover mover(device, type_of_doubles(std::nullopt));
  for (const at::Tensor& part : state_tensors(state)) mover.move(part);
}

}  // namespace hasten
