#include "anatomy/recorder.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <torch/torch.h>

#include <algorithm>
#include <set>

#include "anatomy/dry_tensor.h"
#include "anatomy/engine.h"
#include "device/device.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/base/error.h"
#include "hasten/optim/stateful_optimizer.h"
#include "hasten/process/group.h"

namespace hasten {

using namespace anatomy;
using Clock = std::chrono::steady_clock;

Anatomy::Recorder* Anatomy::Recorder::active_ = nullptr;

struct Anatomy::Recorder::Frame : at::ObserverContext {
  Frame* below = nullptr;
  const Operator* op = nullptr;  // null: a node of the backward pass
  const OpRule* rule = nullptr;  // the one that applies to this call, or null
  std::int64_t call = -1;        // its number among all operator calls
  std::int32_t module = -1;
  Phase phase = Phase::other, phase_before = Phase::other;
  Clock::time_point began;
  Clock::duration inside{};     // time in operators that it calls
  bool counted_inside = false;  // some of these are counted
  CallShapes shapes;
  std::int64_t read = 0, written = 0;
  bool copies_weight = false;
  bool half = false;  // an operand has 16-bit numbers
};

struct Anatomy::Recorder::Allocations : c10::MemoryReportingInfoBase {
  explicit Allocations(Recorder& recorder) : recorder(recorder) {}
  void reportMemoryUsage(void* pointer, std::int64_t bytes, std::size_t, std::size_t total_reserved,
                         c10::Device device) override {
    if (!recorder.listening_ || device.type() != recorder.device_.type()) return;
    recorder.on_allocated(pointer, bytes);
    recorder.on_reserved(static_cast<std::int64_t>(total_reserved));
  }
  bool memoryProfilingEnabled() const override { return true; }
  Recorder& recorder;
};

namespace {

constexpr std::size_t kMaxCalls = 1'000'000;  // 24 bytes each

const void* storage_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.storage().data() : nullptr;
}

// True if the sizes show what is computed with the tensor: it is neither sparse nor nested.
bool is_plain(const at::Tensor& tensor) {
  return !tensor.defined() || (!tensor.is_nested() &&
                               (tensor.layout() == at::kStrided || tensor.layout() == at::kMkldnn));
}

// Bytes in memory. An expanded dimension counts once, overlapping windows at most as their storage.
std::int64_t memory_bytes(const at::Tensor& tensor) {
  std::int64_t bytes = static_cast<std::int64_t>(tensor.element_size());
  const bool strided = tensor.layout() == at::kStrided;
  for (std::int64_t i = 0; i < tensor.dim(); ++i)
    bytes *= strided && tensor.stride(i) == 0 ? std::min<std::int64_t>(1, tensor.size(i))
                                              : tensor.size(i);
  return strided && tensor.has_storage()
             ? std::min(bytes, static_cast<std::int64_t>(tensor.storage().nbytes()))
             : bytes;
}

TensorShape shape_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  if (tensor.is_sparse()) {
    const TensorShape values = shape_of(tensor._values()), indices = shape_of(tensor._indices());
    return {.sizes = tensor.sizes().vec(),
            .numel = values.numel,
            .bytes = values.bytes + indices.bytes,
            .type = values.type};
  }
  if (!is_plain(tensor)) return {.type = tensor.scalar_type()};
  return {.sizes = tensor.sizes().vec(),
          .numel = tensor.numel(),
          .bytes = memory_bytes(tensor),
          .type = tensor.scalar_type()};
}

template <class Visit>
void for_each_tensor(const c10::IValue& value, Visit visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& each : value.toTensorVector()) visit(each);
  } else if (value.isOptionalTensorList()) {
    for (const auto& each : value.toOptionalTensorVector()) visit(each.value_or(at::Tensor()));
  }
}

// Visits the storages of a tensor with their bytes; a sparse tensor has two.
template <class Visit>
void for_each_storage(const at::Tensor& tensor, Visit visit) {
  if (!tensor.defined()) return;
  if (tensor.is_sparse()) {
    for_each_storage(tensor._indices(), visit);
    for_each_storage(tensor._values(), visit);
  } else if (const void* storage = storage_of(tensor)) {
    visit(storage, allocated_bytes(tensor));
  }
}

// LibTorch also records its engine's work and some calls that are no operators.
bool is_operator(std::string_view name) {
  return name.find("::") != name.npos && name.rfind("autograd::", 0) != 0;
}

std::vector<at::Tensor> tensors_of(torch::optim::OptimizerParamState& state) {
  using namespace torch::optim;
  if (auto* adamw = dynamic_cast<AdamWParamState*>(&state))
    return {adamw->exp_avg(), adamw->exp_avg_sq(), adamw->max_exp_avg_sq()};
  if (auto* adam = dynamic_cast<AdamParamState*>(&state))
    return {adam->exp_avg(), adam->exp_avg_sq(), adam->max_exp_avg_sq()};
  if (auto* sgd = dynamic_cast<SGDParamState*>(&state)) return {sgd->momentum_buffer()};
  if (auto* rms = dynamic_cast<RMSpropParamState*>(&state))
    return {rms->square_avg(), rms->momentum_buffer(), rms->grad_avg()};
  if (auto* adagrad = dynamic_cast<AdagradParamState*>(&state)) return {adagrad->sum()};
  std::vector<at::Tensor> all;
  if (auto* own = dynamic_cast<ParamState*>(&state)) {
    for (const auto& [name, tensor] : own->tensors) all.push_back(tensor);
  }
  return all;
}

}  // namespace

Anatomy::Recorder::Recorder(AnatomyOptions options) : options_(options) {}

Anatomy::Recorder::~Recorder() { stop(); }

void Anatomy::Recorder::start() {
  if (active_ != nullptr) {
    throw UsageError("anatomy.nested", {.what = "Anatomy",
                                        .got = "a second one while another is recording",
                                        .expected = "one at a time",
                                        .hint = "destroy the first, or call its report()"});
  }
  active_ = this;
  dry_ = DryRun::active();
  device_ = ProcessState::of({}).device;
  set_saved_tensor_listener([this](const at::Tensor& tensor) { on_saved(tensor); });
  listening_ = true;
  began_ = Clock::now();
  allocations_.emplace(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<Allocations>(*this));
  callback_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(&Recorder::begin, &Recorder::end)
          .needsInputs(true)
          .needsOutputs(options_.operations)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

void Anatomy::Recorder::stop() {
  if (!listening_) return;
  listening_ = false;
  set_saved_tensor_listener({});
  at::removeCallback(callback_);
  allocations_.reset();
  active_ = nullptr;
}

// Memory that exists already, and its purpose.

void Anatomy::Recorder::on_model(torch::nn::Module& module) {
  modules_.watch(module);
  const auto take = [&](const at::Tensor& tensor, Component component) {
    add_existing(tensor, component, modules_.owner(storage_of(tensor)));
  };
  // Tied parameters count once, also across watched models. Several parameters may share a storage,
  // so their offsets count too.
  const auto storage_key = [](const at::Tensor& parameter) {
    return std::pair(storage_of(parameter), parameter.storage_offset());
  };
  std::set<std::pair<const void*, std::int64_t>> seen;
  for (const at::Tensor& known : parameters()) seen.insert(storage_key(known));
  for (const at::Tensor& parameter : module.parameters()) {
    parameters_.emplace_back(parameter.getIntrusivePtr());
    if (seen.insert(storage_key(parameter)).second) {
      parameter_count_ += parameter.numel();
      trained_count_ += parameter.requires_grad() ? parameter.numel() : 0;
    }
    switch_device(parameter.device());
    take(parameter, Component::model_weights);
    if (parameter.grad().defined()) take(parameter.grad(), Component::gradients);
  }
  for (const at::Tensor& buffer : module.buffers()) take(buffer, Component::model_weights);
}

void Anatomy::Recorder::add_existing(const at::Tensor& tensor, Component component,
                                     std::int32_t module) {
  for_each_storage(tensor, [&](const void* storage, std::int64_t bytes) {
    if (tensor.device().type() == device_.type())
      ledger_.add_existing(storage, bytes, component, module);
  });
}

// Forgets what was recorded of another device before the first model came.
void Anatomy::Recorder::switch_device(at::Device device) {
  if (device.type() != device_.type()) ledger_.clear();
  device_ = device;
}

void Anatomy::Recorder::on_optimizer(const std::shared_ptr<torch::optim::Optimizer>& optimizer) {
  optimizers_.push_back(optimizer);
  textbooks_.emplace_back();
  assign_states();
}

// Assigns the states of LibTorch's optimizers to the layers of their parameters.
void Anatomy::Recorder::assign_states() {
  std::map<const void*, std::int32_t> modules;
  for (const at::Tensor& parameter : parameters())
    modules[parameter.unsafeGetTensorImpl()] = modules_.owner(storage_of(parameter));
  for (std::size_t i = 0; i < optimizers_.size(); ++i) {
    const auto optimizer = optimizers_[i].lock();
    if (!optimizer) continue;
    textbooks_[i] = textbook_states(*optimizer);  // its options may change from step to step
    for (const auto& [parameter, state] : optimizer->state()) {
      const auto found = modules.find(parameter);
      for (const at::Tensor& tensor : tensors_of(*state))
        add_existing(tensor, Component::optimizer_states,
                     found == modules.end() ? -1 : found->second);
    }
  }
}

void Anatomy::Recorder::on_batch(const std::vector<at::Tensor>& tensors) {
  if (!listening_) return;
  phase_ = Phase::other;
  on_functionality(tensors);
  const auto with_rows = std::find_if(tensors.begin(), tensors.end(),
                                      [](const at::Tensor& tensor) { return tensor.dim() > 0; });
  if (with_rows != tensors.end()) samples_ += with_rows->size(0);
  const auto ids = std::find_if(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
    return tensor.dim() == 2 && !tensor.is_floating_point();
  });
  if (ids != tensors.end()) tokens_ += ids->numel();
}

void Anatomy::Recorder::on_functionality(const std::vector<at::Tensor>& tensors) {
  if (!listening_) return;
  for (const at::Tensor& tensor : tensors) add_existing(tensor, Component::functionality, -1);
}

// The phases of a step.

void Anatomy::Recorder::enter(StepPhase phase) {
  if (!listening_) return;
  phase_ = static_cast<Phase>(phase);
  // The passes of a closure are part of the optimizer's step.
  if (phase == StepPhase::optimizer)
    optimizer_began_ = static_cast<std::int64_t>(ledger_.events().size());
  if (!first_phase_began_) {
    first_phase_began_ = Clock::now();
    figures_before_ = figures();
    live_before_ = ledger_.live();
    ledger_.reset_peak();
    reserved_ = 0;
  }
}

// The work of a loop between phases belongs to one of them: the loss to forward, clipping to the
// optimizer.
void Anatomy::Recorder::leave(StepPhase phase) {
  if (!listening_) return;
  phase_ = phase == StepPhase::forward    ? Phase::forward
           : phase == StepPhase::backward ? Phase::optimizer
                                          : Phase::other;
  modules_.leave_model();
  if (phase == StepPhase::backward) assign_gradients();
  if (phase == StepPhase::optimizer) {
    assign_states();
    // The states that an unknown optimizer keeps.
    ledger_.assign_survivors(optimizer_began_, Phase::optimizer, Component::optimizer_states);
  }
}

std::vector<at::Tensor> Anatomy::Recorder::parameters() const {
  std::vector<at::Tensor> alive;
  for (const auto& each : parameters_) {
    if (auto parameter = each.lock()) alive.emplace_back(std::move(parameter));
  }
  return alive;
}

void Anatomy::Recorder::assign_gradients() {
  for (const at::Tensor& parameter : parameters()) {
    const std::int32_t module = modules_.owner(storage_of(parameter));
    for_each_storage(parameter.grad(), [&](const void* storage, std::int64_t) {
      ledger_.assign(storage, Component::gradients, module);
    });
  }
}

void Anatomy::Recorder::on_step() {
  if (!listening_) return;
  last_step_ended_ = Clock::now();
  phase_ = Phase::other;
  ++steps_;
  figures_after_ = figures();
  samples_in_steps_ = samples_;
  tokens_in_steps_ = tokens_;
  if (options_.steps > 0 && steps_ >= options_.steps) stop();
}

Anatomy::Recorder::RowFigures Anatomy::Recorder::figures(const Operation& row) {
  return {.flops = row.flops,
          .half_flops = row.half_flops,
          .bytes = row.bytes_read + row.bytes_written};
}

std::map<Anatomy::Recorder::Key, Anatomy::Recorder::RowFigures> Anatomy::Recorder::figures() const {
  std::map<Key, RowFigures> all;
  for (const auto& [key, row] : rows_) all.emplace_hint(all.end(), key, figures(row));
  return all;
}

// Callbacks from LibTorch.

CallSite Anatomy::Recorder::call_site() const {
  CallSite site{.phase = phase_, .module = modules_.current()};
  if (top_ == nullptr) return site;
  site.module = top_->module;
  for (const Frame* frame = top_; frame != nullptr; frame = frame->below) {
    if (frame->op != nullptr) {
      site.operation = frame->op->number;
      site.call = frame->call;
      break;
    }
  }
  return site;
}

std::string Anatomy::Recorder::current_module() {
  return active_ ? active_->modules_.name(active_->call_site().module) : "";
}

void Anatomy::Recorder::on_allocated(void* pointer, std::int64_t bytes) {
  if (bytes > 0) {
    ledger_.allocate(pointer, bytes, call_site());
  } else if (bytes < 0) {
    ledger_.release(pointer, call_site().call);
  }
}

void Anatomy::Recorder::on_reserved(std::int64_t bytes) {
  reserved_now_ = bytes;
  reserved_ = std::max(reserved_, bytes);
  if (ledger_.live() == ledger_.peak()) reserved_at_peak_ = bytes;
}

void Anatomy::Recorder::on_saved(const at::Tensor& tensor) {
  if (!listening_) return;
  for_each_storage(tensor, [&](const void* storage, std::int64_t) {
    ledger_.assign(storage, Component::activations);
  });
}

std::unique_ptr<at::ObserverContext> Anatomy::Recorder::begin(const at::RecordFunction& function) {
  if (active_ == nullptr) return nullptr;
  return function.scope() == at::RecordScope::BACKWARD_FUNCTION ? active_->begin_node(function)
                                                                : active_->begin_operator(function);
}

void Anatomy::Recorder::end(const at::RecordFunction& function, at::ObserverContext* context) {
  if (context == nullptr || active_ == nullptr) return;
  auto& frame = static_cast<Frame&>(*context);
  frame.op ? active_->end_operator(function, frame) : active_->end_node(frame);
}

std::unique_ptr<at::ObserverContext> Anatomy::Recorder::begin_node(
    const at::RecordFunction& function) {
  auto frame = std::make_unique<Frame>();
  frame->below = top_;
  frame->phase_before = phase_;
  phase_ = Phase::backward;
  frame->phase = Phase::backward;
  frame->module = modules_.layer_of_node(function.seqNr());
  frame->began = Clock::now();
  top_ = frame.get();
  return frame;
}

void Anatomy::Recorder::end_node(Frame& frame) {
  phase_ = frame.phase_before;
  top_ = frame.below;
}

const Anatomy::Recorder::Operator& Anatomy::Recorder::operator_for(
    const at::RecordFunction& function) {
  auto& slot = operators_[function.name()];
  if (slot) return *slot;
  slot = std::make_unique<Operator>();
  slot->name = function.name();
  slot->number = static_cast<std::int32_t>(numbered_.size());
  const auto operator_name = function.operator_name();
  const std::string overload = operator_name ? operator_name->overload_name : "";
  slot->rule = device_of(device_).traits().has_linear_kernel
                   ? find_rule_with_linear_kernel(slot->name, overload)
                   : find_rule(slot->name, overload);
  if (operator_name) {
    const auto handle = c10::Dispatcher::singleton().findOp(*operator_name);
    slot->own_kernel = handle && handle->hasKernelForDispatchKey(c10::DispatchKey::CPU);
  }
  if (const auto schema = function.operator_schema()) {
    for (const c10::Argument& result : schema->returns()) {
      slot->views |= result.alias_info() != nullptr && !result.alias_info()->isWrite();
      slot->returns_argument.push_back(result.alias_info() != nullptr);
    }
    // hasten's operators have what they only write after what they read; LibTorch's name it out=.
    const bool ours = slot->name.rfind("hasten::", 0) == 0 && slot->name != "hasten::adamw" &&
                      slot->name != "hasten::adamw_rows";
    bool reads = false;
    for (const c10::Argument& argument : schema->arguments()) {
      const bool writes = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
      slot->writes.push_back(writes);
      const bool overwritten =
          slot->rule != nullptr && slot->rule->overwrites && slot->writes.size() == 1;
      slot->only_writes.push_back(writes &&
                                  (argument.kwarg_only() || overwritten || (ours && reads)));
      reads |= !writes;
    }
  }
  numbered_.push_back(slot.get());
  return *slot;
}

// Returns the layer that made the operands, or for a product the module that several have in
// common; else -1.
std::int32_t Anatomy::Recorder::producing_layer(c10::ArrayRef<const c10::IValue> operands,
                                                const Operator& op) const {
  std::set<std::int32_t> makers;
  for (const c10::IValue& operand : operands) {
    for_each_tensor(operand, [&](const at::Tensor& tensor) {
      const Block* const block = ledger_.find(storage_of(tensor));
      if (block != nullptr && block->site.module >= 0) makers.insert(block->site.module);
    });
  }
  if (makers.size() == 1) return *makers.begin();
  const bool product = op.rule && op.rule->group == OperationGroup::tensor_contraction;
  return product && !makers.empty() ? modules_.shared_parent(makers) : -1;
}

std::unique_ptr<at::ObserverContext> Anatomy::Recorder::begin_operator(
    const at::RecordFunction& function) {
  if (!is_operator(function.name())) return nullptr;
  // Skips operators inside one that is counted as a whole.
  if (top_ != nullptr && top_->op != nullptr && top_->rule != nullptr &&
      top_->rule->group != OperationGroup::none)
    return nullptr;
  auto frame = std::make_unique<Frame>();
  frame->op = &operator_for(function);
  frame->call = call_count_++;
  const Operator& op = *frame->op;
  const auto inputs = function.inputs();
  std::int32_t owner = -1;
  const bool counts = options_.operations && !op.views;
  const bool has_formula =
      op.rule != nullptr && (op.rule->flops || op.rule->reads || op.rule->writes);
  bool plain = true;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (counts) frame->shapes.first.push_back(frame->shapes.inputs.size());
    for_each_tensor(inputs[i], [&](const at::Tensor& tensor) {
      if (owner < 0 && phase_ != Phase::backward) owner = modules_.owner(storage_of(tensor));
      if (!counts) return;
      frame->half |= tensor.defined() && at::isReducedFloatingType(tensor.scalar_type());
      plain &= is_plain(tensor);
      const TensorShape shape = shape_of(tensor);
      const bool writes = i < op.writes.size() && op.writes[i];
      if (!(i < op.only_writes.size() && op.only_writes[i])) frame->read += shape.bytes;
      if (writes) frame->written += shape.bytes;
      // An undefined tensor is a missing argument; in a list it keeps its place.
      if (tensor.defined() || !inputs[i].isTensor()) frame->shapes.inputs.push_back(shape);
    });
    // Tensors are not kept, because autograd reuses those that nobody else holds.
    if (counts && has_formula) {
      const bool tensors =
          inputs[i].isTensor() || inputs[i].isTensorList() || inputs[i].isOptionalTensorList();
      frame->shapes.values.push_back(tensors ? c10::IValue() : inputs[i]);
    }
  }
  if (counts) frame->shapes.first.push_back(frame->shapes.inputs.size());
  // A formula over all numbers of a tensor does not hold for a sparse one.
  frame->rule = plain || !has_formula || op.rule->takes_sparse ? op.rule : nullptr;
  frame->copies_weight = owner >= 0 && op.name == "aten::_to_copy";
  if (owner < 0 && phase_ == Phase::forward && !op.views) owner = producing_layer(inputs, op);
  if (owner >= 0 && phase_ == Phase::forward) {
    // Inside an autograd function gradients are off, and its node already has its number.
    const auto next = static_cast<std::int64_t>(at::sequence_number::peek());
    modules_.enter(owner, c10::GradMode::is_enabled() ? next : next - 1);
  }
  frame->below = top_;
  frame->phase = phase_;
  frame->module = phase_ == Phase::backward ? (top_ ? top_->module : -1) : modules_.current();
  if (phase_ == Phase::optimizer) frame->module = -1;
  frame->began = Clock::now();
  top_ = frame.get();
  return frame;
}

void Anatomy::Recorder::end_operator(const at::RecordFunction& function, Frame& frame) {
  const auto took = Clock::now() - frame.began;
  top_ = frame.below;
  if (frame.copies_weight) {
    for (const c10::IValue& output : function.outputs()) {
      for_each_tensor(output, [&](const at::Tensor& tensor) {
        ledger_.assign(storage_of(tensor), Component::model_weights, frame.module);
      });
    }
  }
  if (top_ != nullptr && top_->op != nullptr) top_->inside += took;
  if (!options_.operations) return;
  const Operator& op = *frame.op;
  // An operator without a rule computes what its callees compute, unless it has a kernel of its
  // own.
  const bool is_composed = frame.rule == nullptr && frame.counted_inside;
  const bool computes_nothing =
      op.views || is_composed ||
      (frame.rule != nullptr && frame.rule->group == OperationGroup::none);
  if (is_composed && op.own_kernel && !op.views) op.uncounted = true;
  Operation& row = rows_[{&op, frame.module, frame.phase}];
  row.seconds += std::chrono::duration<double>(took - frame.inside).count();
  ++row.count;
  if (calls_.size() < kMaxCalls) calls_.push_back({&row, frame.began, took});
  if (top_ != nullptr && (!computes_nothing || frame.counted_inside)) top_->counted_inside = true;
  if (computes_nothing) return;
  const auto& outputs = function.outputs();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const bool made = i >= op.returns_argument.size() || !op.returns_argument[i];
    for_each_tensor(outputs[i], [&](const at::Tensor& tensor) {
      frame.shapes.outputs.push_back(shape_of(tensor));
      if (made) frame.written += frame.shapes.outputs.back().bytes;
    });
  }
  row.group = frame.rule ? frame.rule->group : OperationGroup::element_wise;
  const std::optional<double> flops =
      frame.rule ? flops_of(*frame.rule, frame.shapes) : std::nullopt;
  if (!flops) op.uncounted = true;  // its bytes are known all the same
  row.flops += flops.value_or(0);
  if (frame.half) row.half_flops += flops.value_or(0);
  const auto bytes_moved = [&](Formula formula, std::int64_t all) {
    const std::optional<double> known = formula ? formula(frame.shapes) : std::nullopt;
    return known ? static_cast<std::int64_t>(*known) : all;
  };
  row.bytes_read += bytes_moved(frame.rule ? frame.rule->reads : nullptr, frame.read);
  row.bytes_written += bytes_moved(frame.rule ? frame.rule->writes : nullptr, frame.written);
}

}  // namespace hasten
