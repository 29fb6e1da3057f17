#include "trainer/step_graphs.h"

#include <torch/torch.h>

#include <algorithm>
#include <numeric>

#include "data/column_names.h"
#include "data/repeated_batch.h"
#include "data/static_packed_rows.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/data/detail/loader_core.h"
#include "hasten/data/detail/static_shapes.h"
#include "hasten/models/training_traits.h"
#include "hasten/optim/gradients.h"
#include "optim/gradient_clip.h"
#include "options/training_rules.h"

namespace hasten {
namespace {

at::Tensor number_of_step(at::Device device, at::ScalarType type) {
  return at::zeros({}, at::TensorOptions(device).dtype(type));
}

}  // namespace

bool has_memory_for_graph(std::int64_t total, std::int64_t used, std::int64_t peak) {
  return total - used >= peak;
}

Trainer::Impl::StepGraphs::StepGraphs(Impl& trainer, RunParts& run) : trainer_(trainer), run_(run) {
  if (!trainer_.args.cuda_graph.value_or(true)) return;
  unknown_class_ = unknown_class(*trainer_.model);
  const at::Device device = trainer_.accelerator.device();
  GraphSupport support{.missing = missing_reason()};
  if (support.missing.empty()) support = device_of(device).graphs(device.index());
  if (support.recorder) {
    graphs_.emplace(std::move(support.recorder), trained_objects());
  } else {
    stop(support.missing);
  }
}

TrainedObjects Trainer::Impl::StepGraphs::trained_objects() const {
  return {.device = trainer_.accelerator.device(),
          .model = *trainer_.model,
          .optimizer = run_.optimizer.unwrap()};
}

std::string Trainer::Impl::StepGraphs::missing_reason() const {
  if (trainer_.group().size() > 1) return "several processes";
  if (typeid(trainer_.trainer) != typeid(Trainer))
    return "a class that derives from Trainer, whose functions may compute with numbers of the "
           "host";
  if (trainer_.parts.compute_loss)
    return "TrainerParts::compute_loss, which may compute with numbers of the host";
  if (trainer_.accelerator.mixed_precision() == Precision::fp16)
    return "fp16, because the host then decides whether the optimizer steps";
  if (const std::string reason = missing_graph_reason(trained_objects()); !reason.empty())
    return reason;
  if (!are_requested()) {
    if (const auto conflict = config::automatic_graph_conflict(trainer_.args);
        !conflict.what.empty())
      return conflict.what;
    if (!unknown_class_.empty())
      return str("the class ", unknown_class_, ", which may compute with numbers of the host");
  }
  return reading_callback();
}

std::string Trainer::Impl::StepGraphs::reading_callback() const {
  for (const auto& callback : trainer_.parts.callbacks) {
    if (callback->reads_gradients() || callback->reads_losses()) {
      return str("the callback ", c10::demangle(typeid(*callback).name()), ", which reads ",
                 callback->reads_gradients() ? "gradients" : "the loss of each step");
    }
  }
  return "";
}

void Trainer::Impl::StepGraphs::stop(const std::string& reason) {
  const std::string line =
      str("cuda_graph: the kernels of this run are started one by one, because of ", reason);
  if (are_requested()) {
    trainer_.logger.warning(line);
  } else {
    trainer_.logger.debug(line);
  }
  graphs_.reset();
}

AnyBatch Trainer::Impl::StepGraphs::pad_to_bucket(const AnyBatch& batch) const {
  const TensorDict* const columns = batch.get_if<TensorDict>();
  if (!are_requested() || columns == nullptr || !columns->contains(kInputIdsColumn)) return batch;
  const TrainingTraits* const traits = trainer_.model_traits();
  const std::vector<std::string>& names = trainer_.args.label_names;
  const std::string labels = names.empty() ? kLabelsColumn : names.front();
  TensorDict padded =
      columns->contains(kPackedRows)
          ? with_static_packed_rows(*columns, labels)
          : with_static_shape(
                *columns, 0,
                {.labels = labels, .max_length = traits != nullptr ? traits->max_length() : 0});
  const bool is_padded = padded.at(kInputIdsColumn).sizes() != columns->at(kInputIdsColumn).sizes();
  if (!is_padded) return batch;
  if (trainer_.args.dataloader_pin_memory) trainer_.pin(padded);
  return AnyBatch(std::move(padded));
}

bool Trainer::Impl::StepGraphs::ensure_graph(const Step& step) {
  for (const AnyBatch& each : step.inputs) {
    if (const std::string reason = unrepeatable_batch(each, unknown_class_); !reason.empty()) {
      stop(reason);
      return false;
    }
  }
  if (const std::string reason = reading_callback(); !reason.empty()) {
    stop(reason);
    return false;
  }
  // A micro-batch without items has no loss.
  if (std::any_of(step.items.begin(), step.items.end(), [](double each) { return each <= 0; }))
    return false;
  const std::string shape = shape_of_step(step.inputs);
  if (graphs_->contains(shape)) {
    if (graphs_->find(shape) != nullptr) return true;
    dropped_.insert(shape);
    return false;
  }
  if (!is_due(shape)) return false;
  const auto* const graph = graphs_->record(
      shape, size_of_step(step.inputs),
      [&] {
        std::vector<AnyBatch> batches;
        for (const AnyBatch& each : step.inputs) batches.push_back(with_own_memory(each));
        return operands_with(std::move(batches));
      },
      [&](Operands& operands) {
        return std::vector<at::Tensor>{run_operations(operands).on_device()};
      });
  if (graph == nullptr) {
    stop(std::string(graphs_->failure()));
  } else {
    trainer_.logger.info("cuda_graph: one call starts the kernels of steps with " + shape);
  }
  return graph != nullptr;
}

bool Trainer::Impl::StepGraphs::is_due(const std::string& shape) {
  const bool is_new = seen_[shape]++ == 0;
  consecutive_steps_ = shape == latest_shape_ ? consecutive_steps_ + 1 : 0;
  latest_shape_ = shape;
  if (steps_++ < graphs_->kWarmupSteps || is_new) return false;
  if (!are_requested()) {
    if (graphs_->is_full() || consecutive_steps_ < kSteadySteps) return false;
    // The allocator may still keep the memory of a graph that was dropped, until the recording.
    if (dropped_.contains(shape) || has_memory()) return true;
    stop(
        "the memory of the device, which has no room for a graph in addition to the steps without "
        "one");
    return false;
  }
  if (!graphs_->is_full()) return true;
  if (!std::exchange(has_reported_shapes_, true)) {
    trainer_.logger.warning(str("cuda_graph: batches of more than ", graphs_->kMaxGraphs,
                                " shapes; steps with further shapes run without a graph"));
  }
  return false;
}

bool Trainer::Impl::StepGraphs::has_memory() const {
  const at::Device device = trainer_.accelerator.device();
  const MemoryFigures all = device_of(device).memory(device.index());
  const auto own = device_of(device).allocated(device.index());
  return own && all.total && all.used && has_memory_for_graph(*all.total, *all.used, own->peak);
}

Trainer::Impl::StepGraphs::Operands Trainer::Impl::StepGraphs::operands_with(
    std::vector<AnyBatch> batches) const {
  const at::Device device = trainer_.accelerator.device();
  Operands made{.batches = std::move(batches)};
  for (std::size_t i = 0; i < made.batches.size(); ++i) {
    made.items.push_back(number_of_step(device, at::kDouble));
    made.weights.push_back(number_of_step(device, at::kFloat));
  }
  made.gradient_scale = number_of_step(device, at::kFloat);
  return made;
}

void Trainer::Impl::StepGraphs::write_numbers(const Step& step, Operands& to) const {
  const torch::NoGradGuard no_grad;
  const double total = std::accumulate(step.items.begin(), step.items.end(), 0.0);
  for (std::size_t i = 0; i < step.items.size(); ++i) {
    to.items[i].fill_(step.items[i]);
    to.weights[i].fill_(step.items[i]);
  }
  to.gradient_scale.fill_(total > 0 ? 1.0 / total : 0.0);
}

DeferredScalar Trainer::Impl::StepGraphs::run_operations(Operands& operands) const {
  const bool has_one = operands.batches.size() == 1;  // its weight cancels
  for (std::size_t i = 0; i < operands.batches.size(); ++i) {
    const at::Tensor loss = trainer_.training_output(operands.batches[i]).loss;
    torch::autograd::backward({has_one ? loss : loss * operands.weights[i]});
    run_.losses.add(loss, operands.items[i]);
  }
  if (!has_one) scale_gradients_(run_.trained, operands.gradient_scale);
  return clip_gradients(
      run_.trained, run_.optimizer.unwrap(),
      {.max_norm = trainer_.args.max_grad_norm, .on_device = true, .has_readers = false});
}

DeferredScalar Trainer::Impl::StepGraphs::replay(const Step& step) {
  auto& graph = graphs_->at(shape_of_step(step.inputs));
  for (std::size_t i = 0; i < step.inputs.size(); ++i)
    overwrite(graph.operands->batches[i], step.inputs[i]);
  write_numbers(step, *graph.operands);
  return DeferredScalar(graph.step->replay().front());
}

DeferredScalar Trainer::Impl::StepGraphs::compute_gradients(const Step& step) {
  // No row of an empty micro-batch counts, and the mean of its losses is 0 / 0.
  Step with_items;
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    if (step.items[i] <= 0) continue;
    with_items.inputs.push_back(step.inputs[i]);
    with_items.items.push_back(step.items[i]);
  }
  Operands operands = operands_with(with_items.inputs);
  write_numbers(with_items, operands);
  return run_operations(operands);
}

}  // namespace hasten
