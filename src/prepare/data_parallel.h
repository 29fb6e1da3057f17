// File: prepare/data_parallel.h (internal)
// One model whose gradients are reduced over a group. Throws UsageError "prepare.models-differ",
// "prepare.unused-parameters".
#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "hasten/prepare/data_parallel.h"
#include "hasten/prepare/synchronization.h"
#include "hasten/process/group.h"

namespace c10d {
class Reducer;
}  // namespace c10d

namespace hasten {

class GradientExchange;
class RowExchange;

// The leaves that a backward pass of the loss reaches.
using LeafSet = std::unordered_set<const c10::TensorImpl*>;
LeafSet reached_by(const at::Tensor& loss);

// When the backward pass of this loss is over, before what is asked for later in it.
void at_end_of_pass(const at::Tensor& loss, std::function<void()> call);

class PassOrder;

class DataParallel {
 public:
  // Makes sure that all processes have the same model, with the same weights. A collective.
  DataParallel(std::shared_ptr<torch::nn::Module> module, const Group& group,
               const DistributedDataParallelKwargs& options);
  ~DataParallel();

  const torch::nn::Module* module() const { return module_.get(); }

  // Whether a forward pass of the module, as it is now, begins with the buffers of one rank.
  bool sends_buffers() const;
  void send_buffers(std::int64_t from);
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  bool has_one_of(const LeafSet& leaves) const;
  // Whether any parameter has a gradient already.
  bool has_gradients() const;

  // The backward pass of this loss reduces: each gradient becomes the sum over the processes, times
  // `factor`. Of a pass of several models, each expects it in the same order, with an order that
  // they share.
  void expect(const at::Tensor& loss, double factor,
              const std::shared_ptr<PassOrder>& order = nullptr);
  // That pass is over. Throws where it left parameters out.
  void finish(const at::Tensor& loss);
  // Zero, with a gradient of zeros for every parameter, and of no rows for a sparse one. Where
  // parameters may be left out, and there is a loss of this process's: those that it reaches.
  at::Tensor zero(const at::Tensor& loss) const;

  // Averages the parameters over the processes. A collective.
  void average();

  Synchronization synchronization = Synchronization::at_window_end;

 private:
  class Hook;
  // Parameters whose gradients are sparse now, by their place in parameters_.
  std::vector<bool> sparse_ones() const;
  // The reducer takes those that are dense, and each sparse one has an exchange of its own.
  void divide_parameters();
  void make_reducer();
  void check_all_reached(const at::Tensor& loss) const;
  void check_same_graph() const;
  std::vector<std::string> unused_by(const at::Tensor& loss) const;
  [[noreturn]] void refuse(const std::vector<std::string>& unused) const;

  std::shared_ptr<torch::nn::Module> module_;
  Group group_;
  DistributedDataParallelKwargs options_;
  std::vector<at::Tensor> parameters_;
  std::vector<std::string> names_;
  std::vector<std::shared_ptr<torch::nn::Module>> with_tables_;  // modules that may give rows
  std::vector<bool> sparse_;                                     // what holds now
  std::shared_ptr<GradientExchange> exchange_;
  std::vector<at::Tensor> dense_;
  std::vector<std::string> dense_names_;
  // None where nothing is dense; of a static graph from the first pass on that exchanges: c10d
  // would count the passes before it as part of the graph.
  std::unique_ptr<c10d::Reducer> reducer_;
  Hook* hook_ = nullptr;  // the reducer's
  std::vector<std::unique_ptr<RowExchange>> rows_;
  std::shared_ptr<double> factor_;
  std::shared_ptr<std::int64_t> buckets_sent_;  // in the latest pass
  bool knows_graph_ = false;                    // of a static one
};

}  // namespace hasten
