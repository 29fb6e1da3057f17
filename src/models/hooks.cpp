#include "hasten/models/hooks.h"

#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

using Tensors = std::vector<at::Tensor>;
using torch::nn::AnyModule;
using torch::nn::AnyValue;

// The hooks of one module, by the order of their registration.
struct ModuleHooks {
  std::weak_ptr<torch::nn::Module> module;
  std::map<std::int64_t, ForwardPreHook> before;
  std::map<std::int64_t, ForwardHook> after;
  std::map<std::int64_t, BackwardHook> backward;

  bool empty() const { return before.empty() && after.empty() && backward.empty(); }
};

// The hooks of all modules.
class HookTable {
 public:
  static HookTable& instance() {
    static HookTable& table = *new HookTable;  // handles may outlive static objects
    return table;
  }

  template <class Hook>
  HookHandle add(torch::nn::Module& module, std::map<std::int64_t, Hook> ModuleHooks::*member,
                 Hook hook) {
    const std::weak_ptr<torch::nn::Module> owned = module.weak_from_this();
    if (owned.expired()) {
      throw UsageError("models.hook-owner",
                       {.what = "a hook of " + module.name(),
                        .got = "a module that no shared_ptr owns",
                        .hint = "create the module with std::make_shared or in a ModuleHolder"});
    }
    // Destroyed after the lock ends, as the destructor of a hook may remove other hooks.
    std::vector<ModuleHooks> expired;
    const std::scoped_lock lock(mutex_);
    take_expired(expired);
    const std::int64_t id = ++last_id_;
    ModuleHooks& hooks = by_module_[&module];
    hooks.module = owned;
    (hooks.*member).emplace(id, std::move(hook));
    modules_ = by_module_.size();
    return HookHandle([this, module = &module, member, id] { remove(module, member, id); });
  }

  // Returns a copy of the module's hooks, so that a hook may remove itself.
  std::optional<ModuleHooks> find(const torch::nn::Module& module) const {
    if (modules_ == 0) return std::nullopt;  // no lock in programs without hooks
    const std::scoped_lock lock(mutex_);
    const auto found = by_module_.find(&module);
    // A new module may have the address of one that no longer exists.
    if (found == by_module_.end() || found->second.module.expired()) return std::nullopt;
    return found->second;
  }

 private:
  template <class Hook>
  void remove(const torch::nn::Module* module, std::map<std::int64_t, Hook> ModuleHooks::*member,
              std::int64_t id) {
    Hook removed;  // destroyed after the lock ends, as its destructor may remove other hooks
    const std::scoped_lock lock(mutex_);
    const auto found = by_module_.find(module);
    if (found == by_module_.end()) return;
    const auto hook = (found->second.*member).find(id);
    if (hook == (found->second.*member).end()) return;
    removed = std::move(hook->second);
    (found->second.*member).erase(hook);
    if (found->second.empty()) by_module_.erase(found);
    modules_ = by_module_.size();
  }

  // Moves the hooks of modules that no longer exist out of the table.
  void take_expired(std::vector<ModuleHooks>& expired) {
    std::erase_if(by_module_, [&](auto& entry) {
      if (!entry.second.module.expired()) return false;
      expired.push_back(std::move(entry.second));
      return true;
    });
  }

  mutable std::mutex mutex_;
  std::unordered_map<const torch::nn::Module*, ModuleHooks> by_module_;
  std::atomic<std::size_t> modules_ = 0;
  std::int64_t last_id_ = 0;
};

void check_count(const torch::nn::Module& module, const char* what, std::size_t before,
                 std::size_t after) {
  if (before == after) return;
  throw UsageError("models.hook-tensors", {.what = "a hook of " + module.name(),
                                           .got = str(after, " ", what),
                                           .expected = str(before, ", as it received")});
}

// The backward pass of one call. Autograd's nodes for the inputs and for the outputs share it.
struct BackwardCall : torch::CustomClassHolder {
  std::weak_ptr<torch::nn::Module> module;
  std::map<std::int64_t, BackwardHook> hooks;
  // The positions of the tensors that require a gradient.
  std::vector<std::size_t> inputs, outputs;
  std::size_t input_count = 0, output_count = 0;
  Tensors grad_outputs;  // the gradients of the running backward pass

  // Returns the gradients of the inputs that require one, after the hooks.
  Tensors run(const Tensors& gradients) {
    Tensors grad_inputs(input_count), given = std::exchange(grad_outputs, {});
    given.resize(output_count);
    for (std::size_t i = 0; i < inputs.size(); ++i) grad_inputs[inputs[i]] = gradients[i];
    if (const auto alive = module.lock()) {
      for (const auto& [id, hook] : hooks) {
        hook(*alive, grad_inputs, given);
        check_count(*alive, "gradients", input_count, grad_inputs.size());
      }
    }
    Tensors out;
    for (const std::size_t position : inputs) out.push_back(grad_inputs[position]);
    return out;
  }
};

using CallPointer = c10::intrusive_ptr<BackwardCall>;

CallPointer call_of(torch::autograd::AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<BackwardCall>(
      context->saved_data.at("call").toCapsule());
}

// The forward function of two nodes that return their tensors unchanged. The first result of their
// backward() belongs to the argument `call`.
struct IdentityForward {
  static Tensors forward(torch::autograd::AutogradContext* context, const CallPointer& call,
                         at::TensorList tensors) {
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    context->set_materialize_grads(false);
    return tensors.vec();
  }
};

struct InputHookFunction : torch::autograd::Function<InputHookFunction>, IdentityForward {
  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    Tensors out = call_of(context)->run(gradients);
    out.insert(out.begin(), at::Tensor());
    return out;
  }
};

struct OutputHookFunction : torch::autograd::Function<OutputHookFunction>, IdentityForward {
  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    const CallPointer call = call_of(context);
    call->grad_outputs.assign(call->output_count, at::Tensor());
    for (std::size_t i = 0; i < gradients.size(); ++i)
      call->grad_outputs[call->outputs[i]] = gradients[i];
    if (call->inputs.empty()) call->run({});
    Tensors out = gradients;
    out.insert(out.begin(), at::Tensor());
    return out;
  }
};

// Passes the tensors that require a gradient through a node of the graph.
template <class Node>
void apply_to_differentiable(const CallPointer& call, Tensors& tensors,
                             std::vector<std::size_t>& positions, std::size_t& count) {
  count = tensors.size();
  Tensors passed;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].defined() || !tensors[i].requires_grad()) continue;
    positions.push_back(i);
    passed.push_back(tensors[i]);
  }
  if (passed.empty()) return;
  passed = Node::apply(call, at::TensorList(passed));
  for (std::size_t i = 0; i < positions.size(); ++i) tensors[positions[i]] = passed[i];
}

}  // namespace

HookHandle& HookHandle::operator=(HookHandle&& other) noexcept {
  if (this == &other) return *this;
  remove();
  remove_ = std::exchange(other.remove_, nullptr);
  return *this;
}

void HookHandle::remove() {
  if (const auto removes = std::exchange(remove_, nullptr)) removes();
}

HookHandle register_forward_pre_hook(torch::nn::Module& module, ForwardPreHook hook) {
  return HookTable::instance().add(module, &ModuleHooks::before, std::move(hook));
}

HookHandle register_forward_hook(torch::nn::Module& module, ForwardHook hook) {
  return HookTable::instance().add(module, &ModuleHooks::after, std::move(hook));
}

HookHandle register_full_backward_hook(torch::nn::Module& module, BackwardHook hook) {
  return HookTable::instance().add(module, &ModuleHooks::backward, std::move(hook));
}

HookHandle watch_gradients(const torch::nn::Module& module, GradientWatcher watcher) {
  const auto shared = std::make_shared<const GradientWatcher>(std::move(watcher));
  std::vector<std::pair<at::Tensor, unsigned>> hooks;
  for (const auto& item : module.named_parameters()) {
    if (!item.value().requires_grad()) continue;
    hooks.emplace_back(item.value(), item.value().register_hook(
                                         [shared, name = item.key()](const at::Tensor& gradient) {
                                           (*shared)(name, gradient);
                                         }));
  }
  return HookHandle([hooks = std::move(hooks)] {
    for (const auto& [tensor, position] : hooks) tensor.remove_hook(position);
  });
}

namespace detail {

struct HookedCall::State {
  ModuleHooks hooks;
  torch::nn::Module& module;
  Tensors inputs = {};
  CallPointer backward = {};
};

HookedCall::HookedCall(torch::nn::Module& module) {
  if (auto hooks = HookTable::instance().find(module))
    state_ = std::make_unique<State>(State{*std::move(hooks), module});
}

HookedCall::~HookedCall() = default;

void HookedCall::before(std::vector<at::Tensor>& inputs) {
  State& state = *state_;
  const std::size_t count = inputs.size();
  for (const auto& [id, hook] : state.hooks.before) {
    hook(state.module, inputs);
    check_count(state.module, "tensors", count, inputs.size());
  }
  if (!state.hooks.backward.empty() && at::GradMode::is_enabled()) {
    state.backward = c10::make_intrusive<BackwardCall>();
    state.backward->module = state.hooks.module;
    state.backward->hooks = state.hooks.backward;
    apply_to_differentiable<InputHookFunction>(state.backward, inputs, state.backward->inputs,
                                               state.backward->input_count);
  }
  state.inputs = inputs;
}

void HookedCall::after(std::vector<at::Tensor>& outputs) {
  State& state = *state_;
  const std::size_t count = outputs.size();
  for (const auto& [id, hook] : state.hooks.after) {
    hook(state.module, state.inputs, outputs);
    check_count(state.module, "tensors", count, outputs.size());
  }
  if (state.backward) {
    apply_to_differentiable<OutputHookFunction>(state.backward, outputs, state.backward->outputs,
                                                state.backward->output_count);
  }
}

// A module of a Sequential. Only the specialization of LibTorch's holder below uses it.
struct SequentialItem : torch::nn::Module {
  explicit SequentialItem(AnyModule module) : original(std::move(module)) {}
  AnyValue forward(std::vector<AnyValue> arguments);
  AnyModule original;
};

}  // namespace detail

namespace {

// Visits the tensors of a value that is passed between the modules of a Sequential.
template <class F>
void visit_value(AnyValue& value, F&& f) {
  using Pair = std::tuple<at::Tensor, at::Tensor>;
  if (auto* tensor = value.try_get<at::Tensor>()) {
    f(*tensor);
  } else if (auto* pair = value.try_get<Pair>()) {  // RNN and GRU
    for_each_tensor(*pair, f);
  } else if (auto* nested = value.try_get<std::tuple<at::Tensor, Pair>>()) {  // LSTM
    for_each_tensor(*nested, f);
  }
}

AnyValue call_original(AnyModule& module, std::vector<AnyValue>& arguments) {
  switch (arguments.size()) {
    case 0:
      return module.any_forward();
    case 1:
      return module.any_forward(std::move(arguments[0]));
    case 2:
      return module.any_forward(std::move(arguments[0]), std::move(arguments[1]));
    case 3:
      return module.any_forward(std::move(arguments[0]), std::move(arguments[1]),
                                std::move(arguments[2]));
    default:
      throw UsageError("models.hook-tensors", {.what = "a module in a Sequential with hooks",
                                               .got = str(arguments.size(), " arguments"),
                                               .expected = "at most 3"});
  }
}

}  // namespace

AnyValue detail::SequentialItem::forward(std::vector<AnyValue> arguments) {
  HookedCall call(*original.ptr());
  if (!call) return call_original(original, arguments);
  change_tensors(
      [&](auto&& f) {
        for (AnyValue& argument : arguments) visit_value(argument, f);
      },
      [&](Tensors& inputs) { call.before(inputs); });
  AnyValue result = call_original(original, arguments);
  change_tensors([&](auto&& f) { visit_value(result, f); },
                 [&](Tensors& outputs) { call.after(outputs); });
  return result;
}

}  // namespace hasten

namespace torch::nn {

// Replaces the original module in everything that a Sequential does with its modules.
template <>
struct AnyModuleHolder<hasten::detail::SequentialItem, std::vector<AnyValue>>
    : public AnyModulePlaceholder {
  using Item = hasten::detail::SequentialItem;

  explicit AnyModuleHolder(std::shared_ptr<Item>&& item)
      : AnyModulePlaceholder(typeid(Item)), item_(std::move(item)) {}

  AnyValue forward(std::vector<AnyValue>&& arguments) override {
    return item_->forward(std::move(arguments));
  }
  std::shared_ptr<Module> ptr() override { return item_->original.ptr(); }
  std::unique_ptr<AnyModulePlaceholder> copy() const override {
    return std::make_unique<AnyModuleHolder>(*this);
  }
  std::unique_ptr<AnyModulePlaceholder> clone_module(std::optional<Device> device) const override {
    return std::make_unique<AnyModuleHolder>(std::make_shared<Item>(item_->original.clone(device)));
  }

 private:
  std::shared_ptr<Item> item_;
};

}  // namespace torch::nn

namespace hasten {

void hook_sequentials(torch::nn::Module& root) {
  root.apply([](torch::nn::Module& module) {
    auto* const sequential = module.as<torch::nn::SequentialImpl>();
    if (sequential == nullptr) return;
    for (AnyModule& item : *sequential) {
      if (item.type_info() == typeid(detail::SequentialItem)) continue;
      item = AnyModule(std::make_shared<detail::SequentialItem>(std::move(item)));
    }
  });
}

}  // namespace hasten
