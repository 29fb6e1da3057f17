#include "hasten/tpu/anatomy/dry_tpu.h"

#include <ATen/record_function.h>
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <set>
#include <system_error>
#include <unordered_map>

#include "base/environment_variable.h"
#include "device/loadable_module.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "prepare/accelerator_listener.h"
#include "prepare/placement.h"
#include "tpu/device/opened_tpu.h"
#include "tpu/machine/tpus.h"
#include "tpu/module/dry/dry_tpu_functions.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

// The functions of the module libhasten_dry_tpu.so. They belong to the copy that torch_tpu loads.
struct Functions {
  decltype(&hasten_dry_tpu_set_environment) set_environment = nullptr;
  decltype(&hasten_dry_tpu_enter) enter = nullptr;
  decltype(&hasten_dry_tpu_bytes) bytes = nullptr;
  decltype(&hasten_dry_tpu_report) report = nullptr;
};

template <class Function>
Function* function_of_module(const char* name) {
  const Module<Function> found = load_module<Function>(kDryTpuModule, name);
  if (found.function != nullptr) return found.function;
  throw IoError("device.tpu-module",
                {.what = "loading libhasten_dry_tpu.so, hasten's module for TPU estimates",
                 .got = found.missing,
                 .hint = "install libprotozero-dev and pjrt_c_api.h (python3 -m pip install "
                         "--no-deps xla-cpu-pjrt==0.0.1 next to LibTorch's wheel, or cmake "
                         "-DHASTEN_PJRT_INCLUDE=FOLDER) and build hasten again"});
}

const Functions& functions() {
  static const Functions once = {
      .set_environment = function_of_module<decltype(hasten_dry_tpu_set_environment)>(
          "hasten_dry_tpu_set_environment"),
      .enter = function_of_module<decltype(hasten_dry_tpu_enter)>("hasten_dry_tpu_enter"),
      .bytes = function_of_module<decltype(hasten_dry_tpu_bytes)>("hasten_dry_tpu_bytes"),
      .report = function_of_module<decltype(hasten_dry_tpu_report)>("hasten_dry_tpu_report")};
  return once;
}

// Returns the folder in which LibTorch's wheel is installed (site-packages).
std::vector<std::string> packages_of_libtorch() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&at::addGlobalCallback), &info) == 0) return {};
  return {fs::canonical(info.dli_fname).parent_path().parent_path().parent_path().string()};
}

// Returns the path of the compiler, which is `named` or else HASTEN_DRY_TPU_COMPILER if one of them
// is set. Otherwise looks for libtpu.
std::string path_of_compiler(const std::string& named) {
  const std::string path = named.empty() ? environment_variable(kDryTpuCompiler) : named;
  if (path.empty()) return find_libtpu(config::whole_environment(), packages_of_libtorch());
  std::error_code none;
  if (fs::exists(path, none)) return path;
  throw IoError("device.tpu-compiler",
                {.what = "the compiler for a dry TPU",
                 .got = path + ", which does not exist",
                 .hint = str("name the path of libtpu.so, or unset ", kDryTpuCompiler)});
}

DryTpu*& active_dry_tpu() {
  static DryTpu* one = nullptr;
  return one;
}

// The layer whose parameters an operator read last. A program that does not compile belongs to this
// layer or comes soon after it.
class LastModule {
 public:
  void add_model(const torch::nn::Module& model) {
    const std::lock_guard lock(mutex_);
    for (const auto& each : model.named_parameters()) {
      const std::string& name = each.key();
      const std::size_t dot = name.rfind('.');
      names_[each.value().unsafeGetTensorImpl()] =
          dot == std::string::npos ? "" : name.substr(0, dot);
    }
  }
  void record(const at::RecordFunction& call) {
    const std::lock_guard lock(mutex_);
    for (const c10::IValue& input : call.inputs()) {
      if (!input.isTensor()) continue;
      const auto found = names_.find(input.toTensor().unsafeGetTensorImpl());
      if (found != names_.end()) last_ = found->second;
    }
  }
  std::string last() const {
    const std::lock_guard lock(mutex_);
    return last_;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<const void*, std::string> names_;
  std::string last_;
};

LastModule& last_module() {
  static auto& one = *new LastModule;
  return one;
}

void observe_operators() {
  static const at::CallbackHandle once = at::addGlobalCallback(
      at::RecordFunctionCallback(
          [](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
            last_module().record(call);
            return nullptr;
          })
          .needsInputs(true)
          .scopes({at::RecordScope::FUNCTION}));
  static_cast<void>(once);
}

// The tensors of a component; each storage counts once. Their sizes on the device are read at the
// end, after programs have read the tensors.
class ComponentTensors {
 public:
  void clear() { seen_.clear(), entries_.clear(); }
  void add(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.has_storage() || !tensor.device().is_privateuseone()) return;
    if (seen_.insert(tensor.storage().unsafeGetStorageImpl()).second)
      entries_.push_back({c10::toString(tensor.scalar_type()), tensor.sizes().vec()});
  }
  std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (const Entry& each : entries_)
      sum += functions().bytes(each.type, each.sizes.data(), each.sizes.size());
    return sum;
  }

 private:
  struct Entry {
    const char* type;
    std::vector<std::int64_t> sizes;
  };
  std::set<const void*> seen_;
  std::vector<Entry> entries_;
};

}  // namespace

class DryTpu::Listener : public StepObserver {
 public:
  void on_model(torch::nn::Module& model) override {
    last_module().add_model(model);
    for (const at::Tensor& each : model.parameters()) {
      weights_.add(each);
      parameters_.push_back(each);
    }
    for (const at::Tensor& each : model.buffers()) weights_.add(each);
  }
  void on_optimizer(const std::shared_ptr<torch::optim::Optimizer>& optimizer) override {
    optimizers_.push_back(optimizer);
  }
  void on_batch(const std::vector<at::Tensor>& tensors) override {
    batch_.clear();
    for (const at::Tensor& each : tensors) batch_.add(each);
  }
  void enter(StepPhase phase) override {
    constexpr const char* kNames[] = {"forward", "backward", "optimizer"};
    functions().enter(kNames[static_cast<std::size_t>(phase)]);
  }
  void leave(StepPhase phase) override {
    functions().enter("between");
    if (phase != StepPhase::backward) return;
    gradients_.clear();
    for (const at::Tensor& each : parameters_) gradients_.add(each.grad());
  }
  void on_step() override {
    if (++steps_ == 2) programs_after_second_ = read().programs;
    states_.clear();
    for (const auto& each : optimizers_)
      if (const auto optimizer = each.lock())
        for (const auto& [parameter, state] : optimizer->state())
          for (const at::Tensor& part : state_tensors(*state)) states_.add(part);
  }

  std::int64_t steps() const { return steps_; }

  anatomy::TpuEstimate estimate() const {
    using anatomy::Component;
    anatomy::TpuEstimate estimate = read();
    estimate.steps = steps_;
    estimate.in_order = environment_variable(kTpuBlocking) == "1";
    if (steps_ >= 2)
      estimate.programs_after_second_step = estimate.programs - programs_after_second_;
    for (anatomy::TpuFailure& each : estimate.failed) each.module = last_module().last();
    const auto put = [&](Component component, const ComponentTensors& tensors) {
      bytes_of(estimate.components, component) = tensors.bytes();
    };
    put(Component::model_weights, weights_);
    put(Component::optimizer_states, states_);
    put(Component::gradients, gradients_);
    put(Component::functionality, batch_);
    bytes_of(estimate.components, Component::activations) = estimate.activations;
    if (steps_ >= 2) {
      bytes_of(estimate.components, Component::unknown) =
          estimate.before_last_step - weights_.bytes() - states_.bytes() - batch_.bytes();
    }
    return estimate;
  }

 private:
  static anatomy::TpuEstimate read() {
    std::string json;
    functions().report(json);
    return anatomy::read_tpu_estimate(json);
  }

  std::vector<at::Tensor> parameters_;
  std::vector<std::weak_ptr<torch::optim::Optimizer>> optimizers_;
  ComponentTensors weights_, batch_, gradients_, states_;
  std::int64_t steps_ = 0, programs_after_second_ = 0;
};

DryTpu::DryTpu(const std::string& topology, const std::string& compiler)
    : listener_(std::make_shared<Listener>()) {
  const TpuTopology requested = parse_tpu_topology(topology);
  if (active_dry_tpu() != nullptr || (!environment_variable(kDryTpuTopology).empty() &&
                                      environment_variable(kDryTpuTopology) != requested.name)) {
    throw UsageError("device.tpu-dry-twice",
                     {.what = "dry TPU",
                      .got = "a second one, for " + requested.name + " after " +
                             environment_variable(kDryTpuTopology),
                      .expected = "one per process",
                      .hint = "estimate each topology in a process of its own"});
  }
  const std::string library = path_of_compiler(compiler);
  functions().set_environment(requested.name.c_str(), library.c_str());  // loads all functions
  observe_operators();
  active_dry_tpu() = this;
  set_accelerator_listener([this](StepObservers& observers) { listen_to(observers); });
}

DryTpu::~DryTpu() {
  set_accelerator_listener({});
  active_dry_tpu() = nullptr;
}

DryTpu* DryTpu::active() { return active_dry_tpu(); }

void DryTpu::listen_to(StepObservers& observers) { observers.add(listener_); }

void DryTpu::step() { listener_->on_step(); }

std::int64_t DryTpu::steps() const { return listener_->steps(); }

anatomy::TpuEstimate DryTpu::estimate() const {
  tpu_device();
  return listener_->estimate();
}

}  // namespace hasten
