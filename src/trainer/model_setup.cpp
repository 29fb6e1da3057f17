#include "trainer/model_setup.h"

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/optim/adamw.h"

namespace hasten {

Trainer::Impl::ModelSetup::ModelSetup(Impl& trainer, torch::optim::Optimizer& optimizer)
    : trainer_(trainer) {
  const TrainingArguments& args = trainer.args;
  // Sparse gradients are exact in hasten::AdamW. Over an accumulation window and over virtual ranks
  // dense ones add up faster, and some devices have no sparse tensors.
  set_sparse_gradients(dynamic_cast<AdamW*>(&optimizer) != nullptr &&
                       args.gradient_accumulation_steps == 1 && !trainer.is_elastic() &&
                       trainer.traits().has_sparse_tensors);
  trainer.averaging = dynamic_cast<AveragesWeights*>(&optimizer);
  if (trainer.averaging != nullptr) check_rate_of_averaging();
  if (args.neftune_noise_alpha.value_or(0) > 0) set_embedding_noise(*args.neftune_noise_alpha);
}

Trainer::Impl::ModelSetup::~ModelSetup() {
  set_sparse_gradients(false);  // other optimizers do not take them
  trainer_.averaging = nullptr;
  if (TrainingTraits* const traits = traits_of(*trainer_.model)) traits->set_embedding_noise(0);
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
