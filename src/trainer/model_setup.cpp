#include "trainer/model_setup.h"

#include <typeinfo>

#include "autograd/offload_queue.h"
#include "device/device.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/models/recomputation.h"
#include "hasten/optim/adamw.h"
#include "hasten/optim/stateful_optimizer.h"

namespace hasten {
namespace {

Recomputation recomputation_of(const Kwargs& kwargs) {
  Recomputation wanted{
      .every_n_layers = static_cast<std::int64_t>(kwargs.number("every_n_layers", 1)),
      .policy = from_name<RecomputePolicy>(lower(kwargs.text("policy", "full"))).value(),
      .offload = kwargs.flag("offload", false),
      .preserve_rng_state = kwargs.flag("preserve_rng_state", true)};
  const std::string modules = kwargs.text("modules", "");
  if (!modules.empty()) wanted.modules = split(modules, ':');
  return wanted;
}

}  // namespace

Trainer::Impl::ModelSetup::ModelSetup(Impl& trainer, torch::optim::Optimizer& optimizer)
    : trainer_(trainer) {
  try {
    set(optimizer);
  } catch (...) {
    reset();
    throw;
  }
}

Trainer::Impl::ModelSetup::~ModelSetup() { reset(); }

void Trainer::Impl::ModelSetup::set(torch::optim::Optimizer& optimizer) {
  const TrainingArguments& args = trainer_.args;
  // Sparse gradients are exact in the optimizers that take them, and sums of them over an
  // accumulation window have the same bits as dense ones. Virtual ranks add up dense ones, and some
  // devices have no sparse tensors.
  const auto* const own = dynamic_cast<const StatefulOptimizer*>(&optimizer);
  const bool takes_sparse =
      own != nullptr ? own->takes_sparse_gradients() : dynamic_cast<AdamW*>(&optimizer) != nullptr;
  set_sparse_gradients(takes_sparse && !trainer_.is_elastic() &&
                       trainer_.traits().has_sparse_tensors);
  trainer_.averaging = dynamic_cast<WeightAveragingOptimizer*>(&optimizer);
  if (trainer_.averaging != nullptr) check_rate_of_averaging();
  if (args.neftune_noise_alpha.value_or(0) > 0) set_embedding_noise(*args.neftune_noise_alpha);
  if (args.activation_checkpointing) set_recomputation();
  check_offloading();
  trainer_.check_padding_free();
  set_loss_only();
}

void Trainer::Impl::ModelSetup::reset() {
  set_sparse_gradients(false);  // other optimizers do not take them
  trainer_.averaging = nullptr;
  if (TrainingTraits* const traits = traits_of(*trainer_.model)) {
    traits->set_embedding_noise(0);
    traits->set_loss_only(false);
  }
  if (trainer_.args.activation_checkpointing)
    hasten::set_recomputation(*trainer_.model, std::nullopt);
  trainer_.prepared.reset();
}

void Trainer::Impl::ModelSetup::set_sparse_gradients(bool sparse) {
  if (TrainingTraits* const traits = traits_of(*trainer_.model))
    traits->set_sparse_gradients(sparse);
}

void Trainer::Impl::ModelSetup::set_embedding_noise(double alpha) {
  TrainingTraits* const traits = traits_of(*trainer_.model);
  if (traits != nullptr && traits->set_embedding_noise(alpha)) return;
  throw ConfigError("trainer.embedding-noise",
                    {.what = str("neftune_noise_alpha ", alpha),
                     .got = "a model that does not take noise in its embeddings",
                     .expected = "a model of hasten, or one that overrides "
                                 "TrainingTraits::set_embedding_noise",
                     .hint = "leave out neftune_noise_alpha"});
}

void Trainer::Impl::ModelSetup::set_recomputation() {
  if (trainer_.traits().merges_equal_operations) {
    throw ConfigError("trainer.recomputation",
                      {.what = "activation_checkpointing",
                       .got = str("device ", trainer_.accelerator.device().str(),
                                  ", whose compiler merges what is computed twice"),
                       .expected = "a device without such a compiler, such as a GPU",
                       .hint = "use smaller batches with gradient_accumulation_steps"});
  }
  const Recomputation wanted = recomputation_of(trainer_.args.activation_checkpointing_kwargs);
  if (wanted.offload) check_offload(trainer_.accelerator.device());
  hasten::set_recomputation(*trainer_.model, wanted);
}

void Trainer::Impl::ModelSetup::check_offloading() const {
  if (trainer_.args.activation_offloading) check_offload(trainer_.accelerator.device());
}

// A class that derives from Trainer may read the logits, so they are left out only if it asks for
// that.
void Trainer::Impl::ModelSetup::set_loss_only() {
  const TrainingArguments& args = trainer_.args;
  const bool reads_logits = trainer_.parts.compute_loss || args.label_smoothing_factor != 0;
  const bool is_asked = args.use_liger_kernel.value_or(false);
  if (is_asked && reads_logits) {
    throw ConfigError(
        "trainer.loss-only",
        {.what = "use_liger_kernel",
         .got = str("true, with ",
                    args.label_smoothing_factor != 0 ? "label_smoothing_factor" : "compute_loss",
                    ", which reads the logits"),
         .expected = "a loss that the model computes",
         .hint = "remove one of the two options"});
  }
  if (reads_logits || !args.use_liger_kernel.value_or(typeid(trainer_.trainer) == typeid(Trainer)))
    return;
  TrainingTraits* const traits = traits_of(*trainer_.model);
  const bool done = traits != nullptr && traits->set_loss_only(true);
  if (done || !is_asked) return;
  throw ConfigError("trainer.loss-only",
                    {.what = "use_liger_kernel",
                     .got = "true, for a model that cannot compute its loss without the logits",
                     .expected = "a language model of hasten, or one that overrides "
                                 "TrainingTraits::set_loss_only",
                     .hint = "leave out use_liger_kernel"});
}

void Trainer::Impl::ModelSetup::check_rate_of_averaging() const {
  const TrainingArguments& args = trainer_.args;
  if (args.lr_scheduler_type == SchedulerType::constant) return;
  trainer_.logger.warning(
      str("optim ", name_of(args.optim),
          " takes the mean of the weights instead of lowering the "
          "learning rate, and lr_scheduler_type ",
          name_of(args.lr_scheduler_type),
          " changes the rate as well. Use --lr_scheduler_type constant; warmup_steps still apply"));
}

}  // namespace hasten
