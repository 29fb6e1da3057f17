// File: prepare/backward_runner.h (internal)
// Runs the backward passes of one Accelerator: passes that add gradients in this process only, and
// passes whose gradients are summed over the processes.
//
//   BackwardRunner runner(models, /*find_unused_parameters=*/false);
//   runner.add_gradients(pass, pass.weight);                          // in this process
//   runner.reduce(to_exchange, &pass, pass.weight, 1.0, 1.0 / all);   // a collective
//
// Throws the exceptions of DataParallelModel. Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "prepare/backward_pass.h"
#include "prepare/data_parallel_model.h"

namespace hasten {

class BackwardRunner {
 public:
  // `models` has all prepared models, now and later, and must outlive this object.
  BackwardRunner(const std::vector<std::unique_ptr<DataParallelModel>>& models,
                 bool find_unused_parameters)
      : models_(models), find_unused_parameters_(find_unused_parameters) {}

  // Runs the pass with this loss, which is the loss of the pass or derived from it.
  void run(const BackwardPass& pass, const at::Tensor& loss) const;
  // Adds the gradients of the loss times `share` to the gradients.
  void add_gradients(const BackwardPass& pass, double share) const;
  // Adds the gradients of the loss times `share` to the gradients of these models, then sums each
  // gradient over the processes and multiplies it by `factor`. If the pass is null or the weight
  // zero, this process adds zeros.
  void reduce(const std::vector<DataParallelModel*>& models, const BackwardPass* pass,
              double weight, double share, double factor) const;

 private:
  // Returns the only leaves that get gradients: those to which the user has restricted the pass, or
  // those that get zeros from this process. Returns nullopt if all parameters get gradients.
  std::optional<Leaves> restricted_leaves(const BackwardPass* pass, bool adds) const;
  // Returns a loss that gives the models gradients of zeros, or an undefined tensor if no parameter
  // gets one. With find_unused_parameters, only parameters in `some` get a gradient.
  at::Tensor zero_loss_of(const std::vector<DataParallelModel*>& models,
                          const std::optional<Leaves>& some) const;

  const std::vector<std::unique_ptr<DataParallelModel>>& models_;
  const bool find_unused_parameters_;
};

}  // namespace hasten
