// File: prepare/elastic_ranks.h (internal)
// The virtual ranks of a run. The run computes the same bits on any number of processes that
// divides the number of virtual ranks (docs/design/023). In every accumulation window, each process
// runs its virtual ranks one after the other. Each virtual rank has micro-batches of its own in the
// window.
//
//   ElasticRanks elastic(group, {.ranks = 4, .steps = 2, .threads = 1});
//   elastic.begin_micro_batch(place, models);      // random numbers are those of the micro-batch
//   elastic.add_pass(weight, loss);                // after its backward pass
//   if (place.ends_window) elastic.close();        // a collective: gradients, losses, buffers
//   elastic.end_micro_batch();
//
// Random numbers in a micro-batch depend on the seed of the run, the seed of the loader, the epoch
// and the rows of the batch. Sums follow a binary tree of the virtual ranks. Every virtual rank
// begins with the model buffers from before the window. After the window the models have the
// buffers of virtual rank 0. Throws ConfigError "prepare.elastic", UsageError
// "prepare.elastic-loop". Thread rule: that of the Accelerator.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hasten/checkpoint/detail/training_state.h"
#include "hasten/data/detail/batch_info.h"
#include "hasten/data/detail/loader_sharding.h"
#include "hasten/process/group.h"
#include "prepare/accumulation_window.h"
#include "prepare/tree_sum.h"
#include "process/group/tree_all_reduce.h"

namespace hasten {

struct ElasticOptions {
  std::int64_t ranks = 0;    // virtual ranks; 0 means none
  std::int64_t steps = 1;    // micro-batches of a virtual rank in a full window
  std::int64_t threads = 1;  // threads of an operation
};

class ElasticRanks {
 public:
  // Throws unless the number of virtual ranks is a power of two that the processes divide, and the
  // number of threads is positive.
  static void check(const ElasticOptions& options, std::int64_t processes, at::Device device);

  // Sets the number of threads of LibTorch's operations.
  ElasticRanks(Group group, ElasticOptions options);
  ~ElasticRanks() { end_micro_batch(); }

  std::int64_t ranks() const { return options_.ranks; }
  std::int64_t steps() const { return options_.steps; }
  // The number of virtual ranks of each process.
  std::int64_t ranks_per_process() const { return options_.ranks / group_.size(); }
  ElasticSharding sharding() const { return {.ranks = options_.ranks, .steps = options_.steps}; }

  // Checks that all processes have the same model, and gives them rank 0's weights. A collective.
  void add_model(torch::nn::Module& module) const;

  // Returns the place of the batch of the innermost loop. `pass` is the number of the loop's pass.
  // Throws unless the place is the next one of the window that this pass has begun, or the first
  // one after a complete window.
  ElasticBatchInfo place_of(const BatchInfo* batch, std::int64_t pass);
  // Begins the micro-batch of this place. The first call of a run is a collective.
  void begin_micro_batch(const ElasticBatchInfo& place, const Models& models);
  // Restores the random numbers outside of the micro-batch.
  void end_micro_batch();
  // Counts a backward pass. It has added the gradients of its loss times its weight.
  void add_pass(double weight, const at::Tensor& loss);
  // Ends the last virtual rank. Sets the gradients of the models to the sums over all virtual
  // ranks, and the buffers to those of virtual rank 0. A collective.
  void close();
  // Forgets an open window.
  void drop();

  // Throws if one of these parameters has a gradient that belongs to no window and was not summed.
  void check_parameters(const std::vector<at::Tensor>& parameters) const;
  // The mean loss of the latest closed window.
  double loss() const { return loss_; }

  // Returns the state for a checkpoint. A collective before the first micro-batch of a run.
  ElasticPosition position();
  void restore(const ElasticPosition& saved) { seed_ = saved.seed; }
  // Throws ConfigError "checkpoint.elastic" unless the checkpoint comes from a run like this one.
  // `now` is null for a run without elastic ranks.
  static void check_same_run(const std::optional<ElasticPosition>& saved, const ElasticRanks* now,
                             const std::string& checkpoint);

 private:
  void begin_window(const Models& models);
  void end_virtual_rank();
  void fix_seed();
  void seed_generator_for(const ElasticBatchInfo& place);
  void clear_gradients() const;
  void set_gradients(TensorList sums, const double* has_gradient, double total_weight);
  void set_buffers(const double* has_changed);

  const Group group_;
  const ElasticOptions options_;
  std::optional<std::uint64_t> seed_;  // fixed by the first micro-batch
  TreeAllReduce all_reduce_;
  double loss_ = 0;
  // The key and the pass number of the latest batch that had a micro-batch.
  std::pair<std::uint64_t, std::int64_t> latest_batch_ = {0, -1};

  // The state of the open window.
  std::optional<ElasticBatchInfo> place_;  // of the latest micro-batch
  std::vector<at::Tensor> parameters_;     // parameters that require gradients
  std::vector<at::Tensor> buffers_;        // of the models
  TensorList buffers_before_;              // the buffers before the window
  TensorList rank_0_buffers_;              // the buffers after virtual rank 0
  TreeSum gradients_;                      // the sums of the completed virtual ranks
  std::vector<double> weights_, losses_;   // of each virtual rank
  // The state of LibTorch's generator outside of micro-batches. It is defined only during a
  // micro-batch.
  at::Tensor outer_generator_state_;
};

}  // namespace hasten
