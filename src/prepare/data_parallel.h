// File: prepare/data_parallel.h (internal)
// One model whose gradients are reduced over a group. Throws UsageError "prepare.models-differ",
// "prepare.unused-parameters".
#pragma once

#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
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
using Leaves = std::unordered_map<const c10::TensorImpl*, at::Tensor>;
Leaves reached_by(const at::Tensor& loss);

// When the backward pass of this loss is over, before what is asked for later in it.
void at_end_of_pass(const at::Tensor& loss, std::function<void()> call);

class PassOrder;

class DataParallel {
 public:
  // Makes sure that all processes have the same model, with the same weights. A collective.
  DataParallel(std::shared_ptr<torch::nn::Module> module, const Group& group,
               const DistributedDataParallelKwargs& options);
  ~DataParallel();

  // Null once the module has been destroyed.
  const torch::nn::Module* module() const { return module_.lock().get(); }
  // The same module, kept alive by another pointer from now on.
  void set_owner(const std::shared_ptr<torch::nn::Module>& module) { module_ = module; }

  // Whether a forward pass of the module, as it is now, begins with the buffers of one rank.
  bool sends_buffers() const;
  void send_buffers(std::int64_t from);
  // Those that have gradients.
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  bool has_one_of(const Leaves& leaves) const;
  bool has_one_of(const std::vector<at::Tensor>& tensors) const;
  // Whether any parameter has a gradient already.
  bool has_gradients() const;

  // Before a pass that reduces: parameters that have been frozen or unfrozen since, or whose
  // gradients are sparse now, are exchanged accordingly. A collective where some have been frozen
  // or unfrozen; throws "prepare.models-differ" where these are others in another process.
  void follow_changes();
  // Throws where a pass of these leaves would leave parameters out and must not.
  void check_takes_part(const Leaves& leaves) const;
  // The backward pass of this loss reduces: each gradient becomes the sum over the processes, times
  // `factor`. `graph` has the parameters that the pass gives gradients to; mostly it is the loss.
  // Of a pass of several models, each expects it in the same order, with an order that they share.
  void expect(const at::Tensor& graph, const at::Tensor& loss, double factor,
              const std::shared_ptr<PassOrder>& order = nullptr);
  // That pass is over. Throws where it left parameters out.
  void finish(const at::Tensor& loss);
  // Zero, with a gradient of zeros for every parameter, and of no rows for a sparse one. With
  // `some`: for those of them alone.
  at::Tensor zero(const Leaves* some) const;

  // Backward passes that are announced come from Accelerator::backward. Throws UsageError
  // "prepare.raw-backward" where another one has given a gradient to one of these parameters, and
  // nobody has exchanged or cleared it since. Passes while nothing is exchanged do not count.
  void refuse_raw(const std::vector<at::Tensor>& parameters) const;
  void cleared(const std::vector<at::Tensor>& parameters);
  std::atomic<bool> announced = false;

  // Averages the parameters over the processes. A collective.
  void average();

  Synchronization synchronization = Synchronization::at_window_end;

 private:
  class Hook;
  class RawPasses;
  struct Named {
    std::string name;
    at::Tensor tensor;
    bool trained;  // when it was last looked at
  };
  // Those that have gradients now.
  void choose_parameters();
  // Parameters whose gradients are sparse now, by their place in parameters_.
  std::vector<bool> sparse_ones() const;
  // The reducer takes those that are dense, and each sparse one has an exchange of its own.
  void divide_parameters();
  void make_reducer();
  void check_all_reached(const at::Tensor& loss) const;
  void check_same_graph() const;
  std::vector<std::string> unused_by(const Leaves& leaves) const;
  [[noreturn]] void refuse(const std::vector<std::string>& unused) const;

  std::weak_ptr<torch::nn::Module> module_;
  Group group_;
  DistributedDataParallelKwargs options_;
  std::vector<Named> all_;  // each tensor once
  std::vector<at::Tensor> parameters_;
  std::vector<std::string> names_;
  std::vector<std::weak_ptr<torch::nn::Module>> with_tables_;  // modules that may give rows
  std::vector<bool> sparse_;                                   // what holds now
  std::shared_ptr<GradientExchange> exchange_;
  std::vector<at::Tensor> dense_;
  std::vector<std::string> dense_names_;
  // None where nothing is dense; of a static graph from the first pass on that exchanges: c10d
  // would count the passes before it as part of the graph.
  std::unique_ptr<c10d::Reducer> reducer_;
  Hook* hook_ = nullptr;  // the reducer's
  std::vector<std::unique_ptr<RowExchange>> rows_;
  std::unique_ptr<RawPasses> raw_;
  std::shared_ptr<double> factor_;
  std::shared_ptr<std::int64_t> buckets_sent_;  // in the latest pass
  bool knows_graph_ = false;                    // of a static one
};

}  // namespace hasten
