#include "prepare/data_parallel.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/torch.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_set>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "prepare/same_models.h"

namespace hasten {
namespace {

using Native = c10::intrusive_ptr<c10d::ProcessGroup>;

constexpr std::size_t kMiB = std::size_t{1} << 20;

Native native_of(const Group& group) { return Native::reclaim_copy(group.native()); }

std::vector<bool> sparse_ones(torch::nn::Module& module,
                              const std::vector<at::Tensor>& parameters) {
  std::unordered_set<const c10::TensorImpl*> sparse;
  for (const auto& each : module.modules()) {
    if (const auto* table = each->as<torch::nn::EmbeddingImpl>(); table && table->options.sparse())
      sparse.insert(table->weight.unsafeGetTensorImpl());
  }
  std::vector<bool> marks;
  for (const at::Tensor& parameter : parameters)
    marks.push_back(sparse.count(parameter.unsafeGetTensorImpl()) > 0);
  return marks;
}

c10::optional<at::ScalarType> type_of(CommunicationHook hook) {
  if (hook == CommunicationHook::fp16) return at::kHalf;
  if (hook == CommunicationHook::bf16) return at::kBFloat16;
  return c10::nullopt;
}

}  // namespace

LeafSet reached_by(const at::Tensor& loss) {
  LeafSet leaves;
  std::unordered_set<const torch::autograd::Node*> seen;
  std::vector<torch::autograd::Node*> open = {loss.grad_fn().get()};
  while (!open.empty()) {
    torch::autograd::Node* const node = open.back();
    open.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    if (const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node))
      leaves.insert(leaf->variable.unsafeGetTensorImpl());
    for (const auto& edge : node->next_edges()) open.push_back(edge.function.get());
  }
  return leaves;
}

// Adds a bucket up over the processes, after the factor: the one division that a gradient sees.
class DataParallel::Hook : public c10d::CommHookInterface {
 public:
  Hook(const Group& group, std::shared_ptr<double> factor, CommunicationHook kind)
      : group_(group),
        native_(native_of(group)),
        factor_(std::move(factor)),
        type_(type_of(kind)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    at::Tensor buffer = bucket.getBuffer();
    if (*factor_ != 1.0) buffer.mul_(*factor_);
    const CallScope scope(group_, "gradients, bucket",
                          static_cast<std::int64_t>(bucket.getIndex()));
    if (!type_) {
      std::vector<at::Tensor> both = {buffer};
      return native_->allreduce(both)->getFuture();
    }
    std::vector<at::Tensor> both = {buffer.to(*type_)};
    const auto sum = native_->allreduce(both)->getFuture();
    return sum->then(
        [buffer](c10::ivalue::Future& done) -> c10::IValue {
          buffer.copy_(c10d::detail::parseCppCommHookResult(done.value()));
          return buffer;
        },
        c10::TensorType::get());
  }

  at::Tensor parseHookResult(const c10::IValue& result) override {
    return c10d::detail::parseCppCommHookResult(result);
  }

 private:
  Group group_;
  Native native_;
  std::shared_ptr<double> factor_;
  c10::optional<at::ScalarType> type_;
};

DataParallel::DataParallel(std::shared_ptr<torch::nn::Module> module, const Group& group,
                           const DistributedDataParallelKwargs& options)
    : module_(std::move(module)),
      group_(group),
      options_(options),
      factor_(std::make_shared<double>(1.0)) {
  check_same_model(*module_, group_);
  equalize_weights(*module_, group_);
  std::unordered_map<std::size_t, std::string> names;
  for (const auto& item : module_->named_parameters()) {
    if (!item.value().requires_grad()) continue;
    names[parameters_.size()] = item.key();
    names_.push_back(item.key());
    parameters_.push_back(item.value());
  }
  if (parameters_.empty()) return;
  const std::size_t cap = static_cast<std::size_t>(options_.bucket_cap_mb) * kMiB,
                    first = std::min(kMiB, cap);
  const std::vector<bool> sparse = sparse_ones(*module_, parameters_);
  // The last parameters have their gradients first.
  auto [buckets, limits] =
      c10d::compute_bucket_assignment_by_size(parameters_, {first, cap}, sparse);
  std::reverse(buckets.begin(), buckets.end());
  std::reverse(limits.begin(), limits.end());
  // The arguments of LibTorch 2.11; later ones have more, with defaults.
  reducer_ = std::make_unique<c10d::Reducer>(
      parameters_, buckets, native_of(group_), sparse, static_cast<std::int64_t>(cap),
      options_.find_unused_parameters, options_.gradient_as_bucket_view, names,
      static_cast<std::int64_t>(first),
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
      std::vector<std::int64_t>{});
  reducer_->register_comm_hook(std::make_unique<Hook>(group_, factor_, options_.comm_hook));
  if (options_.static_graph) reducer_->set_static_graph();
}

DataParallel::~DataParallel() {
  if (reducer_) reducer_->remove_autograd_hooks();
}

bool DataParallel::has_one_of(const LeafSet& leaves) const {
  return std::any_of(parameters_.begin(), parameters_.end(), [&](const at::Tensor& parameter) {
    return leaves.count(parameter.unsafeGetTensorImpl()) > 0;
  });
}

void DataParallel::before_forward() {
  if (!options_.broadcast_buffers || !synchronizes || !module_->is_training()) return;
  std::vector<at::Tensor> buffers = module_->buffers();
  if (buffers.empty() || !at::GradMode::is_enabled()) return;
  const torch::NoGradGuard no_grad;
  const CallScope scope(group_, "buffers of rank 0");
  c10d::broadcast_coalesced(native_of(group_), buffers, 250 * kMiB, 0);
}

void DataParallel::expect(const at::Tensor& loss, double factor) {
  if (!reducer_) return;
  *factor_ = factor;
  reducer_->rebuild_buckets();
  reducer_->prepare_for_backward({loss});
  if (options_.static_graph && !std::exchange(knows_graph_, true)) reduce_at_end_of(loss);
}

// Of a static graph the reducer only counts in the first pass, and reduces when that is over.
void DataParallel::reduce_at_end_of(const at::Tensor& loss) {
  loss.register_hook([reducer = reducer_.get()](const at::Tensor& gradient) {
    torch::autograd::Engine::get_default_engine().queue_callback(
        [reducer] { reducer->delay_all_reduce(); });
    return gradient;
  });
}

void DataParallel::check(const at::Tensor& loss) {
  if (!reducer_ || options_.find_unused_parameters || options_.static_graph) return;
  try {
    reducer_->check_finalized();
  } catch (const c10::Error&) {
    const auto reached = reached_by(loss);
    std::vector<std::string> unused;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (reached.count(parameters_[i].unsafeGetTensorImpl()) == 0) unused.push_back(names_[i]);
    }
    if (unused.empty()) throw;
    throw UsageError(
        "prepare.unused-parameters",
        {.what = str("a backward pass on rank ", group_.rank(), " that leaves parameters out"),
         .got = join(unused, ", "),
         .expected = "every parameter of the model, as the other processes wait for all of them",
         .hint = "AcceleratorOptions{.ddp = {.find_unused_parameters = true}}, or freeze them with "
                 "requires_grad_(false) before prepare()"});
  }
}

}  // namespace hasten
