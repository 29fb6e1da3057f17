#include "anatomy/recorder.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

#include <algorithm>
#include <set>

#include "anatomy/call_collector.h"
#include "anatomy/dry_gpu.h"
#include "anatomy/recorder_frame.h"
#include "anatomy/tensor_shapes.h"
#include "autograd/saved_tensors.h"
#include "device/device.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/base/error.h"
#include "hasten/process/group.h"
#include "prepare/placement.h"

namespace hasten {

using namespace anatomy;
using Clock = std::chrono::steady_clock;

namespace {

// Returns the current stream, whose memory the device's allocator uses for the next block.
std::int64_t current_stream(at::Device device) {
  if (!device_of(device).traits().copies_in_background) return 0;  // it has no streams
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device).id();
}

}  // namespace

Anatomy::Recorder* Anatomy::Recorder::active_ = nullptr;

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
  if (const Gpu* const gpu = DryRun::gpu()) gpu_speed_ = speed_of(*gpu);
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

// Memory that already exists, and its purpose.

void Anatomy::Recorder::on_model(torch::nn::Module& module) {
  modules_.watch(module);
  const auto take = [&](const at::Tensor& tensor, Component component) {
    add_existing(tensor, component, modules_.owner(storage_of(tensor)));
  };
  // Tied parameters count once, even across watched models. Several parameters may share a storage,
  // so the key includes their offsets.
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

// Discards what was recorded for a different device before the first model was watched.
void Anatomy::Recorder::switch_device(at::Device device) {
  if (device.type() != device_.type()) {
    ledger_.clear();
    out_of_memory_event_ = -1;
  }
  device_ = device;
}

bool Anatomy::Recorder::runs_behind_host() const {
  return !dry_ && device_of(device_).traits().copies_in_background;  // it has streams
}

void Anatomy::Recorder::on_optimizer(const std::shared_ptr<torch::optim::Optimizer>& optimizer) {
  optimizers_.push_back(optimizer);
  textbooks_.emplace_back();
  assign_states();
}

// Assigns the states of the optimizers to the layers of their parameters.
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
      for (const at::Tensor& tensor : state_tensors(*state))
        add_existing(tensor, Component::optimizer_states,
                     found == modules.end() ? -1 : found->second);
    }
  }
}

void Anatomy::Recorder::set_phase(Phase phase) {
  phase_ = phase;
  if (CallCollector* const calls = CallCollector::active())
    calls->set_counting(phase != Phase::other);
}

void Anatomy::Recorder::on_batch(const std::vector<at::Tensor>& tensors) {
  if (!listening_) return;
  set_phase(Phase::other);
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
  set_phase(static_cast<Phase>(phase));
  // The passes of a closure are part of the optimizer's step.
  if (phase == StepPhase::optimizer)
    optimizer_began_ = static_cast<std::int64_t>(ledger_.events().size());
  if (!first_phase_began_) {
    if (runs_behind_host()) synchronize(device_);  // earlier work is not part of the steps
    first_phase_began_ = Clock::now();
    figures_before_ = figures();
    live_before_ = ledger_.live();
    ledger_.reset_peak();
    reserved_ = 0;
  }
}

// Work of the loop between phases belongs to one of the phases: the loss to forward, and clipping
// to the optimizer.
void Anatomy::Recorder::leave(StepPhase phase) {
  if (!listening_) return;
  set_phase(phase == StepPhase::forward    ? Phase::forward
            : phase == StepPhase::backward ? Phase::optimizer
                                           : Phase::other);
  modules_.leave_model();
  if (phase == StepPhase::backward) assign_gradients();
  if (phase == StepPhase::optimizer) {
    assign_states();
    // These are the states that an unknown optimizer keeps.
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
  const bool is_last = steps_ + 1 == options_.steps;
  // Waits once, because a wait after each step would slow the steps.
  if (is_last && runs_behind_host()) synchronize(device_);
  last_step_ended_ = Clock::now();
  set_phase(Phase::other);
  figures_before_last_ = steps_ > 0 ? std::move(figures_after_) : figures_before_;
  ++steps_;
  figures_after_ = figures();
  samples_in_steps_ = samples_;
  tokens_in_steps_ = tokens_;
  if (is_last) stop();
}

Anatomy::Recorder::RowFigures Anatomy::Recorder::figures(const Operation& row) {
  return {.flops = row.flops,
          .half_flops = row.half_flops,
          .bytes = row.bytes_read + row.bytes_written,
          .kernel_seconds = row.kernel_seconds,
          .host_seconds = row.host_seconds};
}

std::map<Anatomy::Recorder::Key, Anatomy::Recorder::RowFigures> Anatomy::Recorder::figures() const {
  std::map<Key, RowFigures> all;
  for (const auto& [key, row] : rows_) all.emplace_hint(all.end(), key, figures(row));
  return all;
}

// The callbacks of the allocator and of autograd. The operator callbacks are in
// recorder_operators.cpp.

CallSite Anatomy::Recorder::call_site() const {
  CallSite site{.phase = phase_, .module = modules_.current()};
  if (top_ == nullptr) return site;
  site.module = top_->module;
  for (const Frame* frame = top_; frame != nullptr; frame = frame->parent) {
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
    CallSite site = call_site();
    site.stream = current_stream(device_);
    ledger_.allocate(pointer, bytes, site);
    if (out_of_memory_event_ < 0) note_if_out_of_memory(bytes);
  } else if (bytes < 0) {
    ledger_.release(pointer, call_site().call);
  }
}

void Anatomy::Recorder::note_if_out_of_memory(std::int64_t bytes) {
  const DryGpu* const gpu = dry_ ? DryGpu::active() : nullptr;
  const bool exceeds_gpu =
      gpu != nullptr && device_of(device_).is_simulated() && gpu->memory()->missing() > 0;
  if (exceeds_gpu ||
      (options_.exceeds_limit &&
       options_.exceeds_limit({.bytes = bytes, .live = ledger_.live(), .phase = phase_})))
    out_of_memory_event_ = static_cast<std::int64_t>(ledger_.events().size()) - 1;
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

}  // namespace hasten
