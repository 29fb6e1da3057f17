#include "hasten/autograd/checkpoint.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>

#include "autograd/execution_state.h"
#include "autograd/kept_results.h"
#include "autograd/offload_queue.h"
#include "autograd/operator_calls.h"
#include "autograd/saved_tensors.h"
#include "formats/module_tensors.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

using torch::autograd::SavedVariable;
using Inputs = detail::RecomputedRegion::Inputs;

thread_local int recomputation_depth = 0;

// Thrown to end the second run of a region once it has saved all tensors that it needs. It is not a
// std::exception, so that a function that catches its own errors does not catch it.
struct RecomputationComplete {};

// The properties of a tensor that must be the same in both runs.
struct TensorMetadata {
  std::vector<std::int64_t> sizes;
  at::ScalarType type;
  at::Device device;

  static TensorMetadata of(const at::Tensor& tensor) {
    return {tensor.sizes().vec(), tensor.scalar_type(), tensor.device()};
  }
  friend bool operator==(const TensorMetadata&, const TensorMetadata&) = default;
  std::string text() const {
    return str(c10::toString(type), " ", shape_text(sizes), " on ", device.str());
  }
};

// Returns the version of a parameter, which the second run does not recreate. Returns nothing for
// other tensors.
std::optional<std::uint32_t> parameter_version(const at::Tensor& tensor) {
  if (!tensor.is_leaf() || !tensor.requires_grad()) return std::nullopt;
  return static_cast<std::uint32_t>(tensor._version());
}

[[noreturn]] void throw_tensor_mismatch(const std::string& got, const std::string& expected) {
  throw UsageError(
      "autograd.recomputed-tensors",
      {.what = "recomputation of a part of the model in the backward pass",
       .got = got,
       .expected = expected,
       .hint = "the function must compute the same both times: pass the tensors that it uses as "
               "arguments of checkpoint(), and let it change nothing that it reads"});
}

// Returns copies. They are not operators of the function, so the second run does not end at one of
// them.
std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors) {
  const InterceptionScope not_intercepted(nullptr);
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> copies;
  for (const at::Tensor& each : tensors) copies.push_back(each.clone());
  return copies;
}

// Restores the tensors' original values, so it does not change their versions.
void copy_values(const std::vector<at::Tensor>& from, const std::vector<at::Tensor>& to) {
  const InterceptionScope not_intercepted(nullptr);
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < to.size(); ++i) to[i].variable_data().copy_(from[i]);
}

// Sets tensors to earlier values, and restores their present values at its end.
class TensorValuesScope {
 public:
  TensorValuesScope(const std::vector<at::Tensor>& tensors, const std::vector<at::Tensor>& values)
      : tensors_(tensors), present_(copies_of(tensors)) {
    copy_values(values, tensors_);
  }
  TensorValuesScope(const TensorValuesScope&) = delete;
  TensorValuesScope& operator=(const TensorValuesScope&) = delete;
  ~TensorValuesScope() { copy_values(present_, tensors_); }

 private:
  const std::vector<at::Tensor>& tensors_;
  std::vector<at::Tensor> present_;
};

std::vector<at::Device> devices_of(const Inputs& inputs) {
  std::vector<at::Device> devices;
  for (const at::Tensor& input : inputs) {
    if (input.defined() &&
        std::find(devices.begin(), devices.end(), input.device()) == devices.end())
      devices.push_back(input.device());
  }
  return devices;
}

void check_state(const std::vector<at::Tensor>& state) {
  for (const at::Tensor& each : state) {
    if (!each.requires_grad()) continue;
    throw UsageError("autograd.changed-state",
                     {.what = "checkpoint",
                      .got = "a tensor " + shape_text(each.sizes()) +
                             " of CheckpointOptions::state, which fn changes, that requires a "
                             "gradient",
                      .expected = "tensors without gradients, such as buffers",
                      .hint = "let fn return a new tensor instead of changing this one"});
  }
}

// One run of a region in the forward pass, with the data that its backward pass needs to run it
// again. The hooks of the saved tensors share it.
class Region : public std::enable_shared_from_this<Region> {
 public:
  Region(const CheckpointOptions& options, const Inputs& inputs,
         std::function<void(const Inputs&)> run)
      : options_(options),
        run_(std::move(run)),
        state_(ExecutionState::capture(devices_of(inputs), options.preserve_rng_state)) {
    check_state(options_.state);
    state_.generators.report_memory();
    state_values_ = copies_of(options_.state);
    for (const at::Tensor& each : state_values_) report_saved_tensor(each);
    // The scope around the region decides how its inputs are saved.
    for (const at::Tensor& input : inputs) {
      inputs_.emplace_back(input, /*is_output=*/false);
      requires_grad_.push_back(input.defined() && input.requires_grad());
    }
    if (options_.policy == RecomputePolicy::selective) results_.emplace();
  }

  KeptResults* results() { return results_ ? &*results_ : nullptr; }

  // Called when the first run saves a tensor. Returns its number.
  std::size_t add(const at::Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    slots_.push_back(
        {.metadata = TensorMetadata::of(tensor), .version = parameter_version(tensor)});
    return slots_.size() - 1;
  }
  // Called when the graph no longer needs the tensor.
  void drop(std::size_t number) {
    const std::lock_guard lock(mutex_);
    slots_[number].is_needed = false;
    slots_[number].tensor = {};
  }
  // Called when the backward pass needs the tensor.
  at::Tensor get(std::size_t number) {
    const std::lock_guard lock(mutex_);
    if (!slots_[number].tensor) run_again();
    return slots_[number].tensor.get();
  }
  // Called when the second run saves a tensor.
  void add_recomputed(std::size_t number, const at::Tensor& tensor) {
    if (number >= slots_.size()) return;
    Slot& slot = slots_[number];
    const TensorMetadata metadata = TensorMetadata::of(tensor);
    if (metadata != slot.metadata)
      throw_tensor_mismatch(str("tensor ", number + 1, " is ", metadata.text()),
                            slot.metadata.text());
    if (slot.version && parameter_version(tensor).value_or(*slot.version) != *slot.version) {
      throw_tensor_mismatch(str("tensor ", number + 1, ", a parameter ", metadata.text(),
                                ", was changed in place since the forward pass"),
                            "the weights of the forward pass until its backward pass is done");
    }
    if (slot.is_needed && !slot.tensor) slot.tensor = KeptTensor(tensor);
  }
  std::size_t saved() const { return slots_.size(); }

 private:
  struct Slot {
    TensorMetadata metadata;
    std::optional<std::uint32_t> version = {};  // set for a parameter
    bool is_needed = true;
    KeptTensor tensor = {};
  };

  void run_again();
  void release_after_pass();
  Inputs detached_inputs() const;

  std::recursive_mutex mutex_;
  CheckpointOptions options_;
  std::function<void(const Inputs&)> run_;
  ExecutionState state_;
  std::vector<at::Tensor> state_values_;  // the values of options_.state before the first run
  std::vector<SavedVariable> inputs_;
  std::vector<bool> requires_grad_;
  std::optional<KeptResults> results_;
  std::vector<Slot> slots_;
};

// Stores the number of a tensor instead of the tensor.
class RecomputedHooks final : public SavedVariableHooks {
 public:
  explicit RecomputedHooks(std::shared_ptr<Region> region) : region_(std::move(region)) {}
  ~RecomputedHooks() override {
    if (number_) region_->drop(*number_);
  }
  void call_pack_hook(const at::Tensor& tensor) override { number_ = region_->add(tensor); }
  at::Tensor call_unpack_hook() override { return region_->get(*number_); }

 private:
  std::shared_ptr<Region> region_;
  std::optional<std::size_t> number_;
};

// Passes the tensors of the second run to the region.
class SecondRunPolicy final : public SavedTensorPolicy {
 public:
  explicit SecondRunPolicy(Region& region) : region_(region) {}
  std::unique_ptr<SavedVariableHooks> hooks() override {
    return std::make_unique<Hooks>(region_, next_);
  }
  std::size_t saved() const { return *next_; }

 private:
  // A backward pass inside of the function also gets the tensor.
  class Hooks final : public SavedVariableHooks {
   public:
    Hooks(Region& region, std::shared_ptr<std::size_t> next)
        : region_(region), next_(std::move(next)) {}
    void call_pack_hook(const at::Tensor& tensor) override {
      const InterceptionScope not_intercepted(nullptr);
      tensor_ = tensor.detach();
      region_.add_recomputed((*next_)++, tensor);
    }
    at::Tensor call_unpack_hook() override { return tensor_; }

   private:
    Region& region_;
    std::shared_ptr<std::size_t> next_;
    at::Tensor tensor_;
  };

  Region& region_;
  std::shared_ptr<std::size_t> next_ = std::make_shared<std::size_t>(0);
};

struct RecomputationScope {
  RecomputationScope() { ++recomputation_depth; }
  RecomputationScope(const RecomputationScope&) = delete;
  RecomputationScope& operator=(const RecomputationScope&) = delete;
  ~RecomputationScope() { --recomputation_depth; }
};

// Returns the inputs without their histories, so that the second run has a separate graph.
Inputs Region::detached_inputs() const {
  Inputs inputs;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const at::Tensor input = inputs_[i].unpack();
    inputs.push_back(input.defined() ? input.detach().requires_grad_(requires_grad_[i]) : input);
  }
  return inputs;
}

void Region::run_again() {
  const Inputs inputs = detached_inputs();
  SecondRunPolicy second(*this);
  {
    const ExecutionStateScope state(state_);
    const TensorValuesScope values(options_.state, state_values_);
    const at::AutoGradMode with_gradients(true);
    const RecomputationScope running;
    const SavedTensorScope scope(second);
    // Ends the run at the first operator after the last saved tensor. If the last saved tensor is
    // an input of an operator, that operator is not computed. While an exception leaves the
    // function, destructors may call operators, and these must not throw another exception.
    const ResultScope results(
        this->results(), ResultScope::Run::second, [&, before = std::uncaught_exceptions()] {
          if (second.saved() >= slots_.size() && std::uncaught_exceptions() == before)
            throw RecomputationComplete();
        });
    try {
      run_(inputs);
    } catch (const RecomputationComplete&) {
    }
  }
  if (second.saved() < slots_.size()) {
    throw_tensor_mismatch(str(second.saved(), " saved tensors"),
                          str(slots_.size(), ", as in the forward pass"));
  }
  release_after_pass();
}

// If the graph is kept after the backward pass, the tensors of the second run are released: the
// next pass runs the function again.
void Region::release_after_pass() {
  queue_callback_if_graph_is_kept([weak = weak_from_this()] {
    const auto region = weak.lock();
    if (!region) return;
    const std::lock_guard lock(region->mutex_);
    for (Slot& slot : region->slots_) slot.tensor = {};
  });
}

}  // namespace

bool is_recomputing() { return recomputation_depth > 0; }

namespace detail {

struct RecomputedRegion::FirstRunPolicy final : SavedTensorPolicy {
  explicit FirstRunPolicy(std::shared_ptr<Region> region)
      : region(std::move(region)),
        scope(*this),
        results(this->region->results(), ResultScope::Run::first) {}
  std::unique_ptr<SavedVariableHooks> hooks() override {
    return std::make_unique<RecomputedHooks>(region);
  }

  std::shared_ptr<Region> region;
  SavedTensorScope scope;
  ResultScope results;
};

namespace {

std::shared_ptr<Region> make_region(const CheckpointOptions& options,
                                    const RecomputedRegion::Inputs& inputs,
                                    std::function<void(const RecomputedRegion::Inputs&)> run) {
  if (!options.offload) return std::make_shared<Region>(options, inputs, std::move(run));
  const InputOffload offloaded(inputs);
  return std::make_shared<Region>(options, inputs, std::move(run));
}

}  // namespace

RecomputedRegion::RecomputedRegion(const CheckpointOptions& options, const Inputs& inputs,
                                   std::function<void(const Inputs&)> run)
    : run_(std::make_unique<FirstRunPolicy>(make_region(options, inputs, std::move(run)))) {}

RecomputedRegion::~RecomputedRegion() = default;

void RecomputedRegion::record_outputs(const Inputs& outputs) {
  KeptResults* const results = run_->region->results();
  if (results == nullptr) return;
  for (const at::Tensor& output : outputs) results->watch(output);
}

bool records_gradients() { return at::GradMode::is_enabled(); }

}  // namespace detail
}  // namespace hasten
