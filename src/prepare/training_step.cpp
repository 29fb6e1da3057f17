#include "hasten/prepare/detail/training_step.h"

#include <torch/torch.h>

#include <algorithm>
#include <optional>
#include <set>

#include "data/repeated_batch.h"
#include "device/device.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/optim/gradients.h"
#include "hasten/prepare/detail/scopes.h"
#include "hasten/process/detail/logger.h"
#include "optim/distinct.h"
#include "optim/gradient_clip.h"
#include "optim/graphs_by_shape.h"
#include "prepare/accelerator_state.h"
#include "prepare/optimizer_step.h"

namespace hasten {
namespace {

using detail::ForwardScope;

at::Tensor mean_of(const std::vector<at::Tensor>& losses) {
  return losses.size() == 1 ? losses.front() : at::stack(losses).mean();
}

// Returns the parameters of the model and of the optimizer, also those that require no gradient.
std::vector<at::Tensor> parameters_of(const torch::nn::Module& model,
                                      const torch::optim::Optimizer& optimizer) {
  TensorSet seen;
  std::vector<at::Tensor> all = distinct(model.parameters(), seen);
  for (const auto& group : optimizer.param_groups()) {
    for (at::Tensor& each : distinct(group.params(), seen)) all.push_back(std::move(each));
  }
  return all;
}

[[noreturn]] void throw_no_loss(const char* got) {
  throw UsageError("prepare.no-loss",
                   {.what = "a training step",
                    .got = got,
                    .expected = "the loss of each batch",
                    .hint = "pass training_step() a function that returns the loss"});
}

}  // namespace

class TrainingStep::Impl {
 public:
  Impl(std::shared_ptr<AcceleratorState> state, std::shared_ptr<torch::nn::Module> model,
       PreparedOptimizer optimizer, LossFunction compute_loss, const TrainingStepOptions& options)
      : state_(std::move(state)),
        model_(std::move(model)),
        optimizer_(std::move(optimizer)),
        compute_loss_(std::move(compute_loss)),
        options_(options),
        logger_("hasten", LogLevel::passive, state_->process, state_->group) {
    if (!compute_loss_) throw_no_loss("a model that does not compute its loss, and no function");
    state_->check_without_elastic_ranks("training_step()");
    if (options_.max_grad_norm > 0 && state_->stepping.in_backward)
      throw_needs_gradients("TrainingStepOptions::max_grad_norm");
    begin_graphs();
  }

  StepResult run(std::vector<AnyBatch> micro_batches) {
    parameters_ = parameters_of(*model_, optimizer_.unwrap());
    check(micro_batches);
    restart();
    try {
      return run_step(micro_batches);
    } catch (...) {
      restart();
      throw;
    }
  }

  bool used_graph() const { return used_graph_; }
  const std::string& missing_reason() const { return missing_; }

 private:
  struct Operands {
    std::vector<AnyBatch> batches;
    std::vector<at::Tensor> trained;  // the parameters that get gradients
  };
  using Graphs = GraphsByShape<Operands>;

  StepResult run_step(std::vector<AnyBatch>& micro_batches) {
    used_graph_ = false;
    std::vector<at::Tensor> results;
    if (const Graphs::Graph* const graph = graph_of(micro_batches)) {
      for (std::size_t i = 0; i < micro_batches.size(); ++i)
        overwrite(graph->operands->batches[i], micro_batches[i]);
      // The next replay overwrites the results.
      for (const at::Tensor& each : graph->step->replay()) results.push_back(each.clone());
      used_graph_ = true;
    } else {
      results = compute_gradients(micro_batches);
    }
    optimizer_.step();
    clear_gradients();
    StepResult result{.loss = DeferredScalar(results.front())};
    if (results.size() > 1) result.grad_norm = DeferredScalar(results.back());
    return result;
  }

  void begin_graphs() {
    const at::Device device = state_->process.device;
    const TrainedObjects objects{
        .device = device, .model = *model_, .optimizer = optimizer_.unwrap()};
    if (!state_->cuda_graph) {
      missing_ = "AcceleratorOptions::cuda_graph is off";
      return;
    }
    GraphSupport support{.missing = own_missing_reason()};
    if (support.missing.empty()) support.missing = hasten::missing_graph_reason(objects);
    if (support.missing.empty()) support = device_of(device).graphs(device.index());
    if (!support.recorder) return stop(support.missing);
    unknown_class_ = unknown_class(*model_);
    graphs_.emplace(std::move(support.recorder), objects);
  }

  std::string own_missing_reason() const {
    if (state_->group.size() > 1) return "several processes";
    if (state_->scaling) return "fp16, because the host then decides whether the optimizer steps";
    if (state_->stepping.in_backward) return "step_in_backward";
    if (state_->stepping.offloads_states) return "offload_optimizer_states";
    return "";
  }

  // Uses no graphs from now on.
  void stop(const std::string& reason) {
    missing_ = reason;
    graphs_.reset();
    logger_.warning(
        "cuda_graph: the kernels of a training step are started one by one, because of " + reason);
  }

  void check(const std::vector<AnyBatch>& micro_batches) const {
    const std::int64_t maximum = state_->accumulation_steps();
    if (micro_batches.empty() || std::ssize(micro_batches) > maximum) {
      throw UsageError("prepare.accumulation-steps",
                       {.what = "a training step",
                        .got = str(micro_batches.size(), " micro-batches"),
                        .expected = str("1 to ", maximum, ", the gradient_accumulation_steps")});
    }
    state_->accumulation.check_not_inside();
    if (state_->accumulation.holds_gradients_of(parameters_)) {
      throw UsageError(
          "prepare.open-window",
          {.what = "a training step",
           .got = "an accumulation window of its parameters that waits for more micro-batches",
           .expected = "no open window",
           .hint = "pass all micro-batches of a window to run_window()"});
    }
  }

  // Drops gradients and windows that would otherwise become a part of the next step. A window waits
  // for more micro-batches after a step that threw, and after an accumulate() scope without a
  // backward pass. zero_grad() keeps the gradients of such a window, so it is dropped first.
  void restart() {
    state_->accumulation.drop_windows_of(parameters_);
    clear_gradients();
  }

  void clear_gradients() {
    optimizer_.zero_grad();
    for (const at::Tensor& each : parameters_) each.mutable_grad().reset();
    state_->gradients.mark_cleared(parameters_);
  }

  const Graphs::Graph* graph_of(std::vector<AnyBatch>& micro_batches) {
    if (!graphs_ || !state_->observers.empty()) return nullptr;
    for (const AnyBatch& each : micro_batches) {
      const std::string reason = unrepeatable_batch(each, unknown_class_);
      if (reason.empty()) continue;
      stop(reason);
      return nullptr;
    }
    const std::string shape = shape_of_step(micro_batches);
    if (graphs_->contains(shape))
      return graphs_->find(shape, [this](const Operands& operands) { return fits(operands); });
    if (!is_due(shape)) return nullptr;
    const auto* const graph = graphs_->record(
        shape, size_of_step(micro_batches), [&] { return operands_of(micro_batches); },
        [&](Operands& operands) { return record_gradients(operands); });
    if (graph == nullptr) stop(std::string(graphs_->failure()));
    return graph;
  }

  // True if the step still trains the parameters that it trained when it was recorded.
  bool fits(const Operands& operands) const {
    const std::vector<at::Tensor> now = parameters_with_gradients();
    const std::vector<at::Tensor>& recorded = operands.trained;
    return std::equal(now.begin(), now.end(), recorded.begin(), recorded.end(),
                      [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); });
  }

  bool is_due(const std::string& shape) {
    const bool is_new = seen_.insert(shape).second;
    if (steps_++ < Graphs::kWarmupSteps || is_new) return false;
    if (!graphs_->is_full()) return true;
    logger_.warning_once(str("cuda_graph: batches of more than ", Graphs::kMaxGraphs,
                             " shapes; steps with further shapes run without a graph"));
    return false;
  }

  Operands operands_of(const std::vector<AnyBatch>& micro_batches) const {
    Operands made{.batches = {}, .trained = parameters_with_gradients()};
    for (const AnyBatch& each : micro_batches) made.batches.push_back(with_own_memory(each));
    return made;
  }

  at::Tensor loss_of(AnyBatch& batch) {
    const ForwardScope scope(*state_, *model_);
    at::Tensor loss = compute_loss_(*model_, batch).loss;
    if (!loss.defined()) throw_no_loss("a batch without a loss");
    return loss;
  }

  // Computes the gradients with the calls of an ordinary loop. Returns the results of the step.
  std::vector<at::Tensor> compute_gradients(std::vector<AnyBatch>& micro_batches) {
    std::vector<at::Tensor> losses;
    for (std::size_t i = 0; i < micro_batches.size(); ++i) {
      const AccumulateScope scope(state_, {model_}, /*ends_window=*/i + 1 == micro_batches.size());
      const at::Tensor loss = loss_of(micro_batches[i]);
      state_->backward({.loss = loss});
      losses.push_back(loss.detach());
    }
    const torch::NoGradGuard no_grad;
    state_->close_due_windows(parameters_);
    state_->unscale(parameters_);
    return results_of(losses);
  }

  // Computes the same gradients while a graph records the operations. The host counts no
  // micro-batch.
  std::vector<at::Tensor> record_gradients(Operands& operands) {
    std::vector<at::Tensor> losses;
    for (AnyBatch& batch : operands.batches) {
      const at::Tensor loss = loss_of(batch);
      torch::autograd::backward({loss}, {}, {}, false, operands.trained);
      losses.push_back(loss.detach());
    }
    const torch::NoGradGuard no_grad;
    if (losses.size() > 1) scale_gradients_(parameters_, 1.0 / static_cast<double>(losses.size()));
    return results_of(losses);
  }

  std::vector<at::Tensor> parameters_with_gradients() const {
    std::vector<at::Tensor> all = parameters_;
    std::erase_if(all, [](const at::Tensor& each) { return !each.requires_grad(); });
    return all;
  }

  // Clips the gradients. Returns the mean loss and, with clipping, the norm before it.
  std::vector<at::Tensor> results_of(const std::vector<at::Tensor>& losses) {
    std::vector<at::Tensor> results = {mean_of(losses)};
    if (options_.max_grad_norm <= 0) return results;
    const bool on_device = device_of(state_->process.device).traits().defers_scalar_reads;
    const DeferredScalar norm = clip_gradients(
        parameters_, optimizer_.unwrap(),
        {.max_norm = options_.max_grad_norm, .on_device = on_device, .has_readers = false});
    results.push_back(on_device ? norm.on_device() : at::scalar_tensor(norm.value(), at::kDouble));
    return results;
  }

  const std::shared_ptr<AcceleratorState> state_;
  const std::shared_ptr<torch::nn::Module> model_;
  PreparedOptimizer optimizer_;
  const LossFunction compute_loss_;
  const TrainingStepOptions options_;
  // The parameters at the beginning of the latest step. The program may freeze, unfreeze and add
  // parameters between two steps.
  std::vector<at::Tensor> parameters_;
  Logger logger_;
  std::optional<Graphs> graphs_;  // unset if the steps have no graphs
  std::string missing_;           // why they have no graphs
  std::string unknown_class_;     // the first class of the model that is not hasten's or LibTorch's
  std::set<std::string> seen_;    // the shapes of steps without a graph
  std::int64_t steps_ = 0;        // the number of these steps
  bool used_graph_ = false;
};

TrainingStep::TrainingStep(std::shared_ptr<AcceleratorState> state,
                           std::shared_ptr<torch::nn::Module> model, PreparedOptimizer optimizer,
                           LossFunction compute_loss, const TrainingStepOptions& options)
    : impl_(std::make_unique<Impl>(std::move(state), std::move(model), std::move(optimizer),
                                   std::move(compute_loss), options)) {}
TrainingStep::TrainingStep(TrainingStep&&) noexcept = default;
TrainingStep& TrainingStep::operator=(TrainingStep&&) noexcept = default;
TrainingStep::~TrainingStep() = default;

StepResult TrainingStep::run(std::vector<AnyBatch> micro_batches) {
  return impl_->run(std::move(micro_batches));
}

bool TrainingStep::used_graph() const { return impl_->used_graph(); }

const std::string& TrainingStep::missing_graph_reason() const { return impl_->missing_reason(); }

}  // namespace hasten
