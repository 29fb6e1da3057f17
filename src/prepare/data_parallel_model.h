// File: prepare/data_parallel_model.h (internal)
// Reduces the gradients of one model over a group.
//
//   DataParallelModel model(module, group, options);
//   model.prepare_backward(loss, loss, /*factor=*/1.0 / static_cast<double>(group.size()));
//   loss.backward();  // buckets are exchanged meanwhile
//   model.finish_backward(loss);
//
// Throws UsageError "prepare.models-differ", "prepare.unused-parameters", "prepare.static-graph",
// "prepare.raw-backward". Thread rule: the training thread; hooks of the backward pass run on the
// threads of autograd.
#pragma once

#include <torch/csrc/autograd/variable.h>
#include <torch/nn/module.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "hasten/prepare/detail/data_parallel.h"
#include "hasten/process/group.h"
#include "prepare/backward_pass.h"

namespace c10d {
class Reducer;
}  // namespace c10d

namespace hasten {

class GradientExchange;
class RowExchange;

// When the gradients of a model are exchanged between processes.
enum class Synchronization {
  at_window_end,  // when an accumulation window closes
  later,          // after this scope: the next exchange includes them
  now,            // in every backward pass
  never,          // each process trains on its own, and weights are averaged instead
};

// Calls `call` at the end of the backward pass of this loss, before callbacks that the pass queues
// later.
void call_at_end_of_pass(const at::Tensor& loss, std::function<void()> call);

class PassOrder;

class DataParallelModel {
 public:
  // Checks that all processes have the same model and gives them rank 0's weights. A collective.
  DataParallelModel(const std::shared_ptr<torch::nn::Module>& module, const Group& group,
                    const DistributedDataParallelKwargs& options);
  ~DataParallelModel();

  // Returns null if the module has been destroyed.
  const torch::nn::Module* module() const { return module_.lock().get(); }

  // True if a forward pass of the module, in its present state, begins with a broadcast of one
  // rank's buffers.
  bool sends_buffers() const;
  // Broadcasts the buffers of rank `from`, also those of types that a backend lacks. A collective.
  void send_buffers(std::int64_t from);
  // The parameters that require gradients.
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  bool has_one_of(const Leaves& leaves) const;
  bool has_one_of(const std::vector<at::Tensor>& tensors) const;
  // True if any parameter has a gradient.
  bool has_gradients() const;

  // Call it before a pass that reduces. Adapts to parameters that were frozen or unfrozen since the
  // last call, and to changes between dense and sparse gradients. The call is a collective if any
  // parameters were frozen or unfrozen. Throws "prepare.models-differ" if all
  // processes have changed some and these differ.
  void update_parameters();
  // Throws "prepare.unused-parameters" if a pass of these leaves would leave out parameters and the
  // options forbid it.
  void check_all_parameters_used(const Leaves& leaves) const;
  // Prepares a backward pass of this loss that reduces: each gradient becomes the sum over the
  // processes of their gradients times their `factor`. `graph` contains the parameters that get
  // gradients; usually it is the loss. If a pass has several models, all processes prepare them in
  // the same order, with a shared PassOrder.
  void prepare_backward(const at::Tensor& graph, const at::Tensor& loss, double factor,
                        const std::shared_ptr<PassOrder>& order = nullptr);
  // Ends that pass and sums sparse gradients. Throws if the pass left parameters out.
  void finish_backward(const at::Tensor& loss);
  // Returns a zero that gives every parameter a gradient of zeros (without rows if it is sparse).
  // With `some`, only parameters in `some` get a gradient.
  at::Tensor zero_loss(const Leaves* some) const;

  // Throws UsageError "prepare.raw-backward" if a backward pass outside Accelerator::backward gave
  // one of these parameters a gradient that has been neither exchanged nor cleared since. Passes
  // while nothing is exchanged (no_sync, LocalSGD) do not count.
  void throw_if_unexchanged(const std::vector<at::Tensor>& parameters) const;
  // Notes that these gradients have been cleared.
  void mark_cleared(const std::vector<at::Tensor>& parameters);
  // True while Accelerator::backward runs a pass.
  std::atomic<bool> in_accelerator_backward = false;

  // Averages the parameters over the processes. A collective.
  void average();

  Synchronization synchronization = Synchronization::at_window_end;

 private:
  class Hook;
  class UnexchangedGradients;
  struct NamedParameter {
    std::string name;
    at::Tensor tensor;
    bool trained;  // requires_grad() at the last check
  };
  // Sets parameters_ and names_ to the parameters that require gradients now.
  void choose_parameters();
  // Returns a flag for each of parameters_, which is true if its gradient is sparse now.
  std::vector<bool> sparse_flags() const;
  // Passes dense parameters to the reducer, and creates an exchange for each sparse parameter.
  void split_sparse_and_dense();
  void make_reducer();
  void check_all_reached(const at::Tensor& loss) const;
  void check_static_graph() const;
  std::vector<std::string> unused_by(const Leaves& leaves) const;
  [[noreturn]] void throw_unused(const std::vector<std::string>& unused) const;

  std::weak_ptr<torch::nn::Module> module_;
  Group group_;
  DistributedDataParallelKwargs options_;
  std::vector<NamedParameter> all_parameters_;  // every parameter, each tensor once
  std::vector<at::Tensor> parameters_;
  std::vector<std::string> names_;
  std::vector<std::weak_ptr<torch::nn::Module>> sparse_modules_;  // may have sparse gradients
  std::vector<bool> sparse_;  // sparse_flags() at the last split
  std::shared_ptr<GradientExchange> exchange_;
  std::vector<at::Tensor> dense_;
  std::vector<std::string> dense_names_;
  // Null if no parameter is dense. With a static graph it is created in the first pass that
  // exchanges, because c10d would count earlier passes as part of the graph.
  std::unique_ptr<c10d::Reducer> reducer_;
  Hook* hook_ = nullptr;  // owned by the reducer
  std::vector<std::unique_ptr<RowExchange>> row_exchanges_;
  std::unique_ptr<UnexchangedGradients> unexchanged_;
  std::shared_ptr<double> factor_;
  std::shared_ptr<std::int64_t> buckets_sent_;  // in the latest pass
  bool static_graph_started_ = false;           // a pass of the static graph has begun
};

}  // namespace hasten
