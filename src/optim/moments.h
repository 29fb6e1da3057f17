// File: optim/moments.h (internal)
// The parts of a step that the optimizers of Adam's family have in common.
//
//   const auto [means, squares] = update_moments(entries, entries.gradients, beta1, beta2);
//
// `Entries` is StatefulOptimizer::Entries. Thread rule: that of the optimizer.
#pragma once

#include <torch/torch.h>

#include <utility>
#include <vector>

namespace hasten {

// Moves the running mean of the squared gradients, the state "exp_avg_sq", towards the new ones.
inline void update_second_moments(const std::vector<at::Tensor>& exp_avg_sqs,
                                  const std::vector<at::Tensor>& gradients, double beta2) {
  at::_foreach_mul_(exp_avg_sqs, beta2);
  at::_foreach_addcmul_(exp_avg_sqs, gradients, gradients, 1 - beta2);
}

struct Moments {
  std::vector<at::Tensor> exp_avgs, exp_avg_sqs;
};

// Reads the states of update_moments() (StatefulOptimizer::read_states).
template <class Entries>
void read_moments(const Entries& entries) {
  entries.state("exp_avg");
  entries.state("exp_avg_sq");
}

// Moves the running means of the gradients and of their squares towards the new ones.
template <class Entries>
Moments update_moments(const Entries& entries, const std::vector<at::Tensor>& gradients,
                       double beta1, double beta2) {
  Moments moments;
  moments.exp_avgs = entries.state("exp_avg");
  moments.exp_avg_sqs = entries.state("exp_avg_sq");
  at::_foreach_lerp_(moments.exp_avgs, gradients, 1 - beta1);
  update_second_moments(moments.exp_avg_sqs, gradients, beta2);
  return moments;
}

// Returns the gradients, with the weight decay added unless the options decouple it.
template <class Options, class Entries>
std::vector<at::Tensor> decayed_gradients(const Options& options, const Entries& entries) {
  return entries.gradients_with(options.decoupled_weight_decay() ? 0 : options.weight_decay());
}

// Decays the parameters if the options decouple the weight decay.
template <class Options, class Entries>
void decay_parameters(const Options& options, const Entries& entries) {
  if (options.decoupled_weight_decay()) entries.decay(options);
}

}  // namespace hasten
