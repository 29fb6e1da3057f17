// The labels of a batch, and its loss.
#include <torch/torch.h>

#include <algorithm>
#include <typeinfo>

#include "data/batch_error.h"
#include "data/padding.h"
#include "device/memory_failure.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/models/pack_rows.h"
#include "models/losses.h"
#include "trainer/trainer_checks.h"
#include "trainer/trainer_impl.h"

namespace hasten {
namespace {

// Returns the place of a failure, for a message. Repeated rows that fill up a step are not named,
// because another process has them as its own.
std::string place_of_failure(const RealRows& rows) {
  if (rows.count == 0) return " in a process that has no rows of its own in this step";
  if (rows.first_rows.empty()) return "";
  return " on " + detail::list_of_rows(rows.first_rows, rows.count);
}

}  // namespace

void throw_no_logits(const std::string& what) {
  throw UsageError(
      "trainer.no-logits",
      {.what = what,
       .got = "a batch with a loss and no logits",
       .expected = "logits, which it is computed from",
       .hint = "return ModelOutput{.loss = loss, .logits = logits} from compute_loss"});
}

std::string first_label_column(const TrainingArguments& args) {
  return args.label_names.empty() ? "labels" : args.label_names.front();
}

at::Tensor Trainer::Impl::labels_of(AnyBatch& batch) const {
  return parts.labels ? parts.labels(batch) : batch.labels(first_label_column(args));
}

bool Trainer::Impl::shifts_labels(const at::Tensor& labels) const {
  return model_traits() != nullptr && model_traits()->shifts_labels() && labels.dim() > 1 &&
         labels.size(-1) > 0;
}

double Trainer::Impl::count_items(RealRows& real) const {
  const at::Tensor labels = labels_of(real.batch);
  if (!labels.defined() || labels.dim() == 0) return static_cast<double>(real.count);
  if (labels.is_floating_point()) return static_cast<double>(labels.size(0));
  const at::Tensor used =
      shifts_labels(labels) ? labels.narrow(-1, 1, labels.size(-1) - 1) : labels;
  if (!used.is_cpu()) return static_cast<double>(used.ne(kIgnoredLabel).sum().item<std::int64_t>());
  const at::Tensor all = used.to(at::kLong).contiguous();
  const std::int64_t* label = all.const_data_ptr<std::int64_t>();
  return static_cast<double>(all.numel() - std::count(label, label + all.numel(), kIgnoredLabel));
}

// A model that does not know where the texts of a packed row begin would let them attend to each
// other.
void Trainer::Impl::check_packed_batch(AnyBatch& batch) const {
  const auto* const tensors = batch.get_if<TensorDict>();
  if (tensors == nullptr || !tensors->contains(kPackedRows)) return;
  const TrainingTraits* const traits = model_traits();
  if (traits != nullptr && traits->supports_packed_batches()) return;
  throw ConfigError(
      "trainer.packed-batch",
      {.what = "a packed batch, with " + std::string(kPackedRows),
       .got = c10::demangle(typeid(*model).name()) + ", which does not take such batches",
       .expected = "a model of hasten for texts, or one that overrides "
                   "TrainingTraits::supports_packed_batches",
       .hint = "use DataCollatorWithPadding, or compute the loss in compute_loss"});
}

void Trainer::Impl::report_failed_rows(const std::string& part, const RealRows& rows,
                                       const std::exception& error) const {
  if (dynamic_cast<const Error*>(&error) != nullptr || is_out_of_memory(error)) return;
  logger.error(str(part, " failed", place_of_failure(rows), ": ", short_message(error)),
               {.main_process_only = group().size() == 1});
}

ModelOutput Trainer::Impl::compute_loss(AnyBatch& batch) const {
  const LossFunction& loss = parts.compute_loss ? parts.compute_loss : forward;
  if (!loss) {
    throw UsageError("trainer.no-compute-loss",
                     {.what = "a Trainer of " + c10::demangle(typeid(*model).name()),
                      .got = "a module whose forward() does not return a ModelOutput",
                      .expected = "a way to compute the loss of a batch",
                      .hint = "pass TrainerParts::compute_loss, as in "
                              ".compute_loss = [](Net& net, const Batch& batch) { ... }"});
  }
  if (!parts.compute_loss) check_packed_batch(batch);
  ModelOutput out = loss(*model, batch);
  out.loss = smoothed_loss(out, batch);
  return out;
}

at::Tensor Trainer::Impl::smoothed_loss(const ModelOutput& out, AnyBatch& batch) const {
  if (args.label_smoothing_factor == 0) return out.loss;
  at::Tensor labels = labels_of(batch);
  if (!labels.defined()) return out.loss;
  if (!out.logits.defined()) throw_no_logits("label_smoothing_factor");
  check_smoothed_labels(args, *model, labels, out.logits);
  if (shifts_labels(labels)) labels = shifted_labels(labels);
  const std::int64_t classes = out.logits.size(-1);
  // (1 - e) * cross entropy + e * its mean over all classes, averaged over labels
  // that are not -100.
  const at::Tensor log_p = at::log_softmax(out.logits.to(at::kFloat).reshape({-1, classes}), -1),
                   flat = labels.reshape({-1});
  const at::Tensor counted = flat.ne(kIgnoredLabel);
  const at::Tensor hit = -log_p.gather(1, flat.clamp_min(0).unsqueeze(1)).squeeze(1),
                   spread = -log_p.mean(1);
  const at::Tensor each =
      hit * (1 - args.label_smoothing_factor) + spread * args.label_smoothing_factor;
  return each.masked_fill(counted.logical_not(), 0).sum() / counted.sum();
}

void Trainer::Impl::check_loss(const at::Tensor& loss) const {
  if (!loss.defined()) {
    const bool own = static_cast<bool>(parts.compute_loss);
    throw UsageError("trainer.no-loss",
                     {.what = "training",
                      .got = own ? "an undefined loss from compute_loss" : "a batch without labels",
                      .expected = own ? "a loss for each batch" : "labels",
                      .hint = own ? "" : "name the label column (--label_column)"});
  }
  check_loss_shape(loss);
  if (!loss.requires_grad()) {
    throw UsageError("trainer.loss-without-gradient",
                     {.what = "the loss of a batch",
                      .got = "a tensor without a gradient",
                      .expected = "a loss that depends on a parameter that requires a gradient",
                      .hint = "compute it from the module's outputs, without detach(), item() or a "
                              "NoGradGuard"});
  }
}

void Trainer::Impl::check_loss_shape(const at::Tensor& loss) const {
  if (loss.numel() != 1) {
    throw UsageError("trainer.loss-shape",
                     {.what = "the loss of a batch",
                      .got = str("a tensor of ", loss.numel(), " numbers"),
                      .expected = "one number, the mean over the rows or labels of the batch",
                      .hint = "end compute_loss with .mean(), or leave out reduction = kNone"});
  }
  if (loss.is_complex()) {
    throw UsageError("trainer.loss-shape",
                     {.what = "the loss of a batch",
                      .got = str("a number of type ", c10::toString(loss.scalar_type())),
                      .expected = "a real number",
                      .hint = "end compute_loss with at::real() or .abs()"});
  }
}

void Trainer::Impl::add_labels(AnyBatch& batch, EvalPrediction& to) const {
  if (args.label_names.size() < 2 || parts.labels || batch.get_if<TensorDict>() == nullptr) {
    to.label_ids = labels_of(batch);
    return;
  }
  for (const std::string& name : args.label_names) {
    const at::Tensor column = batch.labels(name);
    if (!column.defined()) return to.labels.clear();
    to.labels[name] = column;
  }
}

}  // namespace hasten
