// File: trainer/model_setup.h (internal)
// Sets what the module and the optimizer do during a run, and resets it when the run has ended:
// sparse gradients, noise in the embeddings, recomputation, losses without logits, and the weights
// that the optimizer averages.
//
// Thread rule: that of the Trainer.
#pragma once

#include <torch/optim/optimizer.h>

#include "trainer/trainer_impl.h"

namespace hasten {

class Trainer::Impl::ModelSetup {
 public:
  // Throws ConfigError "trainer.embedding-noise" if the module takes no noise,
  // "trainer.recomputation" if the device does not recompute, "trainer.loss-only" if
  // use_liger_kernel is not possible, and "trainer.padding-free" if padding_free is not. Also
  // throws what set_recomputation() and ActivationOffload throw. The module is then as it was
  // before.
  ModelSetup(Impl& trainer, torch::optim::Optimizer& optimizer);
  ~ModelSetup();
  ModelSetup(const ModelSetup&) = delete;
  ModelSetup& operator=(const ModelSetup&) = delete;

 private:
  void set(torch::optim::Optimizer& optimizer);
  void reset();
  void set_sparse_gradients(bool sparse);
  void set_embedding_noise(double alpha);
  void set_recomputation();
  void check_offloading() const;
  void set_loss_only();
  void check_rate_of_averaging() const;

  Impl& trainer_;
};

}  // namespace hasten
