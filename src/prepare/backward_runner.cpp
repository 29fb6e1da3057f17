#include "prepare/backward_runner.h"

#include <torch/torch.h>

#include <algorithm>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/optim/gradients.h"
#include "prepare/pass_order.h"

namespace hasten {
namespace {

// During its lifetime, marks backward passes as passes of Accelerator::backward.
class AcceleratorBackwardScope {
 public:
  explicit AcceleratorBackwardScope(const std::vector<std::unique_ptr<DataParallelModel>>& models)
      : models_(models) {
    for (const auto& model : models_) model->in_accelerator_backward = true;
  }
  AcceleratorBackwardScope(const AcceleratorBackwardScope&) = delete;
  AcceleratorBackwardScope& operator=(const AcceleratorBackwardScope&) = delete;
  ~AcceleratorBackwardScope() {
    for (const auto& model : models_) model->in_accelerator_backward = false;
  }

 private:
  const std::vector<std::unique_ptr<DataParallelModel>>& models_;
};

// Divides the existing gradients of the models and of the other leaves of the pass by the share.
// Returns the other leaves, which are in no bucket.
std::vector<at::Tensor> divide_gradients(const std::vector<DataParallelModel*>& models,
                                         const BackwardPass& pass, double share) {
  Leaves leaves = pass.leaves();
  for (const DataParallelModel* const model : models) {
    scale_gradients_(model->parameters(), 1.0 / share);
    for (const at::Tensor& each : model->parameters()) leaves.erase(each.unsafeGetTensorImpl());
  }
  std::vector<at::Tensor> outside_buckets = tensors_of(leaves);
  scale_gradients_(outside_buckets, 1.0 / share);
  return outside_buckets;
}

// Prepares the models for the backward pass of this loss. If the user has restricted the pass to
// some leaves, only these get gradients.
void prepare_backward(const std::vector<DataParallelModel*>& models, const at::Tensor& loss,
                      double factor, const Leaves* restricted_to) {
  // The last model is usually closest to the loss and gets its gradients first.
  const auto order = models.size() > 1 ? std::make_shared<PassOrder>() : nullptr;
  for (auto model = models.rbegin(); model != models.rend(); ++model) {
    const at::Tensor graph = restricted_to != nullptr ? (*model)->zero_loss(restricted_to) : loss;
    (*model)->prepare_backward(graph, loss, factor, order);
  }
  // Runs before the reducers wait for the buckets that they have sent.
  if (order && loss.defined()) call_at_end_of_pass(loss, [order] { order->release(); });
}

}  // namespace

void BackwardRunner::run(const BackwardPass& pass, const at::Tensor& loss) const {
  if (!loss.requires_grad()) {
    throw UsageError("prepare.loss-without-gradient",
                     {.what = "backward(loss)",
                      .got = "a tensor without a gradient",
                      .expected = "a loss that depends on a tensor that requires a gradient",
                      .hint = "compute it from the model's outputs, without detach(), item() or a "
                              "NoGradGuard"});
  }
  const AcceleratorBackwardScope scope(models_);
  // Scales in float, because in 16 bits the scaled loss might overflow.
  const at::Tensor scaled =
      pass.scale == 1 ? loss : (has_16_bits(loss) ? loss.to(at::kFloat) : loss) * pass.scale;
  torch::autograd::backward({scaled}, {}, pass.retain_graph, pass.create_graph, pass.inputs);
}

void BackwardRunner::add_gradients(const BackwardPass& pass, double share) const {
  if (share == 1.0) return run(pass, pass.loss);
  if (!has_16_bits(pass.loss) && pass.scale == 1) return run(pass, pass.loss * share);
  // The gradient of a 16-bit loss has 16 bits too and would round the share. In a float16 pass, a
  // share of thousands of items would overflow. Instead, the existing gradients are divided by the
  // share before the pass, and all gradients are multiplied by it afterwards.
  const std::vector<at::Tensor> leaves = tensors_of(pass.leaves());
  scale_gradients_(leaves, 1.0 / share);
  try {
    run(pass, pass.loss);
  } catch (...) {
    scale_gradients_(leaves, share);  // a pass that throws is not counted
    throw;
  }
  scale_gradients_(leaves, share);
}

void BackwardRunner::reduce(const std::vector<DataParallelModel*>& models, const BackwardPass* pass,
                            double weight, double share, double factor) const {
  const bool adds = pass != nullptr && weight > 0;
  for (DataParallelModel* const model : models) model->update_parameters();
  const std::optional<Leaves> some = restricted_leaves(pass, adds);
  if (pass != nullptr && pass->inputs_of_user) {
    for (const DataParallelModel* const model : models) model->check_all_parameters_used(*some);
  }
  // The factor is applied to the buckets and not to the loss, because the pass may also reach
  // leaves that this exchange leaves out, such as another model in no_sync.
  const bool rounds = adds && (has_16_bits(pass->loss) || pass->scale != 1);
  std::vector<at::Tensor> outside_buckets;
  if (rounds && share != 1.0) {  // as in add_gradients; the buckets apply the share
    outside_buckets = divide_gradients(models, *pass, share);
    factor *= share;
  }
  at::Tensor own;
  if (adds) {
    own = rounds || share == 1.0 ? pass->loss : pass->loss * share;
  } else {
    own = zero_loss_of(models, some);
  }
  prepare_backward(models, own, factor, adds && some ? &*some : nullptr);
  if (own.defined()) run(adds ? *pass : BackwardPass{}, own);
  for (DataParallelModel* const model : models) model->finish_backward(own);
  scale_gradients_(outside_buckets, share);
}

std::optional<Leaves> BackwardRunner::restricted_leaves(const BackwardPass* pass, bool adds) const {
  if (pass == nullptr) return std::nullopt;
  if (pass->inputs_of_user || (!adds && find_unused_parameters_)) return pass->leaves();
  return std::nullopt;
}

at::Tensor BackwardRunner::zero_loss_of(const std::vector<DataParallelModel*>& models,
                                        const std::optional<Leaves>& some) const {
  // A process without items adds zeros, because its own loss is a mean over nothing, 0 / 0.
  const Leaves* const reached = find_unused_parameters_ && some ? &*some : nullptr;
  at::Tensor sum;
  for (const DataParallelModel* const model : models) {
    const at::Tensor one = model->zero_loss(reached);
    if (one.defined()) sum = sum.defined() ? sum + one.to(sum.device()) : one;
  }
  return sum;
}

}  // namespace hasten
