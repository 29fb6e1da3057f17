#include "prepare/data_parallel_model.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/torch.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_set>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/models/training_traits.h"
#include "optim/distinct.h"
#include "prepare/byte_tensor.h"
#include "prepare/gradient_exchange.h"
#include "prepare/model_consistency.h"
#include "prepare/pass_order.h"
#include "prepare/row_exchange.h"
#include "prepare/span.h"

namespace hasten {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

NativeGroup native_of(const Group& group) { return NativeGroup::reclaim_copy(group.native()); }

// Returns the module's own parameters that have sparse gradients. Most modules have none.
std::vector<at::Tensor> sparse_parameters_of(const torch::nn::Module& module) {
  if (const auto* table = module.as<torch::nn::EmbeddingImpl>(); table && table->options.sparse())
    return {table->weight};
  if (const auto* bag = module.as<torch::nn::EmbeddingBagImpl>(); bag && bag->options.sparse())
    return {bag->weight};
  if (const TrainingTraits* const traits = traits_of(module)) return traits->sparse_parameters();
  return {};
}

bool may_have_sparse_parameters(const torch::nn::Module& module) {
  return module.as<torch::nn::EmbeddingImpl>() || module.as<torch::nn::EmbeddingBagImpl>() ||
         traits_of(module) != nullptr;
}

}  // namespace

void call_at_end_of_pass(const at::Tensor& loss, std::function<void()> call) {
  loss.register_hook([call = std::move(call)](const at::Tensor& gradient) {
    torch::autograd::Engine::get_default_engine().queue_callback(call);
    return gradient;
  });
}

// Multiplies a bucket by the factor and sums it over the processes. No other code divides
// gradients.
class DataParallelModel::Hook : public c10d::CommHookInterface {
 public:
  Hook(const Group& group, std::shared_ptr<GradientExchange> exchange,
       std::shared_ptr<double> factor, std::shared_ptr<std::int64_t> sent)
      : group_(group),
        exchange_(std::move(exchange)),
        factor_(std::move(factor)),
        sent_(std::move(sent)) {}

  // Sets the order of the models of the next pass. Null means that the pass has only this model.
  void set_order(std::shared_ptr<PassOrder> order) {
    order_ = std::move(order);
    if (order_) position_ = order_->register_model();
  }

  ReductionFuture runHook(c10d::GradBucket& bucket) override {
    if (!order_) return exchange(bucket);
    // The reducer destroys its bucket after this call.
    const auto kept = std::make_shared<c10d::GradBucket>(bucket);
    return order_->send(position_, bucket.isLast(), [this, kept] { return exchange(*kept); });
  }

  at::Tensor parseHookResult(const c10::IValue& result) override {
    return c10d::detail::parseCppCommHookResult(result);
  }

 private:
  ReductionFuture exchange(c10d::GradBucket& bucket) {
    const auto end_of_span = begin_span(name_of_span(bucket));
    ++*sent_;
    const CallScope scope(group_, "gradients, bucket",
                          static_cast<std::int64_t>(bucket.getIndex()));
    ReductionFuture sum = exchange_->sum(bucket, *factor_);
    if (end_of_span) sum->addCallback([end_of_span](c10::ivalue::Future&) { end_of_span(); });
    return sum;
  }

  static std::string name_of_span(const c10d::GradBucket& bucket) {
    return str("exchange of bucket ", bucket.getIndex(), ", ",
               human_bytes(static_cast<std::int64_t>(bucket.getBuffer().nbytes())));
  }

  Group group_;
  std::shared_ptr<GradientExchange> exchange_;
  std::shared_ptr<double> factor_;
  std::shared_ptr<std::int64_t> sent_;
  std::shared_ptr<PassOrder> order_;  // null if the pass has only this model
  std::size_t position_ = 0;
};

// Marks parameters that receive a gradient from a backward pass outside Accelerator::backward.
class DataParallelModel::UnexchangedGradients {
 public:
  explicit UnexchangedGradients(const DataParallelModel& model) : parameters_(model.parameters_) {
    using torch::autograd::variable_list;
    marked_ = std::vector<std::atomic<bool>>(parameters_.size());
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      auto accumulator = torch::autograd::impl::grad_accumulator(parameters_[i]);
      const std::uintptr_t key =
          accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
              [this, i, &model](const variable_list& outputs, const variable_list&) {
                if (!model.in_accelerator_backward && exchanges(model)) any_ = marked_[i] = true;
                return outputs;
              }));
      hooks_.push_back({std::move(accumulator), key});
    }
  }
  UnexchangedGradients(const UnexchangedGradients&) = delete;
  UnexchangedGradients& operator=(const UnexchangedGradients&) = delete;
  ~UnexchangedGradients() {
    for (const auto& hook : hooks_) hook.accumulator->del_post_hook(hook.key);
  }

  bool any() const { return any_; }
  bool is_marked(std::size_t parameter) const {
    return marked_[parameter] && parameters_[parameter].grad().defined();
  }
  void clear(std::size_t parameter) { marked_[parameter] = false; }
  void clear() {
    if (!any_.exchange(false)) return;
    for (auto& mark : marked_) mark = false;
  }

 private:
  static bool exchanges(const DataParallelModel& model) {
    return model.synchronization == Synchronization::at_window_end ||
           model.synchronization == Synchronization::now;
  }

  struct AccumulatorHook {
    // This is a shared_ptr in LibTorch 2.11 and an intrusive_ptr in LibTorch 2.15.
    decltype(torch::autograd::impl::grad_accumulator(at::Tensor())) accumulator;
    std::uintptr_t key;
  };
  const std::vector<at::Tensor> parameters_;
  std::vector<std::atomic<bool>> marked_;  // hooks run on the threads of several devices
  std::atomic<bool> any_ = false;
  std::vector<AccumulatorHook> hooks_;
};

DataParallelModel::DataParallelModel(const std::shared_ptr<torch::nn::Module>& module,
                                     const Group& group,
                                     const DistributedDataParallelKwargs& options)
    : module_(module),
      group_(group),
      options_(options),
      exchange_(make_gradient_exchange(options, native_of(group))),
      factor_(std::make_shared<double>(1.0)),
      buckets_sent_(std::make_shared<std::int64_t>(0)) {
  check_same_model(*module, group_);
  equalize_weights(*module, group_);
  TensorSet seen;
  for (const auto& item : module->named_parameters()) {
    if (!distinct({item.value()}, seen).empty())
      all_parameters_.push_back({.name = item.key(), .tensor = item.value(), .trained = false});
  }
  for (const auto& each : module->modules()) {
    if (may_have_sparse_parameters(*each)) sparse_modules_.push_back(each);
  }
  choose_parameters();
  split_sparse_and_dense();
}

DataParallelModel::~DataParallelModel() {
  if (reducer_) reducer_->remove_autograd_hooks();
}

void DataParallelModel::choose_parameters() {
  names_.clear();
  parameters_.clear();
  for (NamedParameter& each : all_parameters_) {
    each.trained = each.tensor.requires_grad();
    if (!each.trained) continue;
    names_.push_back(each.name);
    parameters_.push_back(each.tensor);
  }
}

void DataParallelModel::update_parameters() {
  const bool same = std::all_of(
      all_parameters_.begin(), all_parameters_.end(),
      [](const NamedParameter& each) { return each.trained == each.tensor.requires_grad(); });
  if (!same) {
    if (const auto module = module_.lock()) check_same_model(*module, group_);
    choose_parameters();
  }
  if (!same || sparse_flags() != sparse_)
    split_sparse_and_dense();  // set_sparse_gradients was called
}

std::vector<bool> DataParallelModel::sparse_flags() const {
  TensorSet sparse;
  for (const auto& each : sparse_modules_) {
    const auto module = each.lock();
    if (!module) continue;
    for (const at::Tensor& table : sparse_parameters_of(*module))
      sparse.insert(table.unsafeGetTensorImpl());
  }
  std::vector<bool> marks;
  for (const at::Tensor& parameter : parameters_)
    marks.push_back(sparse.count(parameter.unsafeGetTensorImpl()) > 0);
  return marks;
}

void DataParallelModel::split_sparse_and_dense() {
  sparse_ = sparse_flags();
  row_exchanges_.clear();
  dense_.clear();
  dense_names_.clear();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (sparse_[i]) {
      row_exchanges_.push_back(
          std::make_unique<RowExchange>(parameters_[i], group_, wire_type(options_)));
    } else {
      dense_.push_back(parameters_[i]);
      dense_names_.push_back(names_[i]);
    }
  }
  if (reducer_) reducer_->remove_autograd_hooks();
  reducer_.reset();
  unexchanged_ = std::make_unique<UnexchangedGradients>(*this);
  static_graph_started_ = false;
  if (!options_.static_graph) make_reducer();
}

void DataParallelModel::make_reducer() {
  if (dense_.empty()) return;
  std::unordered_map<std::size_t, std::string> name_of;
  for (std::size_t i = 0; i < dense_names_.size(); ++i) name_of[i] = dense_names_[i];
  const std::size_t cap = static_cast<std::size_t>(options_.bucket_cap_mb) * kMiB,
                    first = std::min(kMiB, cap);
  // The last parameters get their gradients first.
  auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(dense_, {first, cap});
  std::reverse(buckets.begin(), buckets.end());
  std::reverse(limits.begin(), limits.end());
  // These are the arguments in LibTorch 2.11. Later versions have more, with defaults.
  reducer_ = std::make_unique<c10d::Reducer>(
      dense_, buckets, native_of(group_), std::vector<bool>(dense_.size(), false),
      static_cast<std::int64_t>(cap), options_.find_unused_parameters,
      options_.gradient_as_bucket_view, name_of, static_cast<std::int64_t>(first),
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
      std::vector<std::int64_t>{});
  auto hook = std::make_unique<Hook>(group_, exchange_, factor_, buckets_sent_);
  hook_ = hook.get();
  reducer_->register_comm_hook(std::move(hook));
  if (options_.static_graph) reducer_->set_static_graph();
}

bool DataParallelModel::has_one_of(const Leaves& leaves) const {
  return std::any_of(all_parameters_.begin(), all_parameters_.end(),
                     [&](const NamedParameter& each) {
                       return leaves.count(each.tensor.unsafeGetTensorImpl()) > 0;
                     });
}

bool DataParallelModel::has_one_of(const std::vector<at::Tensor>& tensors) const {
  TensorSet given;
  distinct(tensors, given);
  return std::any_of(all_parameters_.begin(), all_parameters_.end(),
                     [&](const NamedParameter& each) {
                       return given.count(each.tensor.unsafeGetTensorImpl()) > 0;
                     });
}

bool DataParallelModel::has_gradients() const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [](const at::Tensor& parameter) { return parameter.grad().defined(); });
}

bool DataParallelModel::sends_buffers() const {
  const bool exchanges_nothing =
      synchronization == Synchronization::later || synchronization == Synchronization::never;
  if (!options_.broadcast_buffers || exchanges_nothing || !at::GradMode::is_enabled()) return false;
  const auto module = module_.lock();
  return module && module->is_training() && !module->buffers().empty();
}

void DataParallelModel::send_buffers(std::int64_t from) {
  const torch::NoGradGuard no_grad;
  const CallScope scope(group_, "buffers");
  const auto module = module_.lock();
  if (!module) return;
  std::vector<at::Tensor> sent;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // a buffer, and its bytes elsewhere
  for (const at::Tensor& buffer : module->buffers()) {
    if (is_sendable(buffer.scalar_type()) || buffer.layout() != at::kStrided) {
      sent.push_back(buffer);
    } else if (buffer.numel() > 0) {
      sent.push_back(bytes_of(buffer));
      if (!sent.back().is_alias_of(buffer)) copies.emplace_back(buffer, sent.back());
    }
  }
  if (sent.empty()) return;
  c10d::broadcast_coalesced(native_of(group_), sent, 250 * kMiB, static_cast<int>(from));
  for (const auto& [buffer, bytes] : copies) buffer.copy_(tensor_of_bytes(bytes, buffer));
}

void DataParallelModel::check_all_parameters_used(const Leaves& leaves) const {
  if (options_.find_unused_parameters && !options_.static_graph) return;
  if (const auto unused = unused_by(leaves); !unused.empty()) throw_unused(unused);
}

void DataParallelModel::prepare_backward(const at::Tensor& graph, const at::Tensor& loss,
                                         double factor, const std::shared_ptr<PassOrder>& order) {
  *factor_ = factor;
  for (const auto& rows : row_exchanges_) rows->begin_pass();
  *buckets_sent_ = 0;
  if (!reducer_) make_reducer();
  if (!reducer_) return;
  hook_->set_order(order);
  reducer_->rebuild_buckets();
  reducer_->prepare_for_backward({graph});
  // With a static graph the reducer only counts during the first pass, and reduces after it.
  if (options_.static_graph && !std::exchange(static_graph_started_, true))
    call_at_end_of_pass(loss, [reducer = reducer_.get()] { reducer->delay_all_reduce(); });
}

void DataParallelModel::finish_backward(const at::Tensor& loss) {
  if (!options_.find_unused_parameters && !options_.static_graph) check_all_reached(loss);
  if (options_.static_graph) check_static_graph();
  for (const auto& rows : row_exchanges_) {
    const auto end_of_span = begin_span("exchange of rows");
    const CallScope scope(group_, "rows of a sparse gradient");
    rows->sum(*factor_);
    if (end_of_span) end_of_span();
  }
  unexchanged_->clear();  // earlier gradients were exchanged as well
}

void DataParallelModel::check_static_graph() const {
  if (!reducer_ || *buckets_sent_ > 0) return;
  throw UsageError("prepare.static-graph",
                   {.what = str("a backward pass with static_graph on rank ", group_.rank()),
                    .got = "no exchange of gradients",
                    .expected = "the same parameters as in the first pass that exchanged "
                                "gradients, each used as often",
                    .hint = "leave out static_graph if backward passes differ"});
}

void DataParallelModel::check_all_reached(const at::Tensor& loss) const {
  const bool all_rows = std::all_of(row_exchanges_.begin(), row_exchanges_.end(),
                                    [](const auto& rows) { return rows->got_gradient(); });
  try {
    if (reducer_) reducer_->check_finalized();
    if (all_rows) return;
  } catch (const c10::Error&) {
    if (unused_by(reached_leaves(loss)).empty()) throw;
  }
  throw_unused(unused_by(reached_leaves(loss)));
}

std::vector<std::string> DataParallelModel::unused_by(const Leaves& leaves) const {
  std::vector<std::string> unused;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (leaves.count(parameters_[i].unsafeGetTensorImpl()) == 0) unused.push_back(names_[i]);
  }
  return unused;
}

void DataParallelModel::throw_if_unexchanged(const std::vector<at::Tensor>& parameters) const {
  if (!unexchanged_->any()) return;
  TensorSet stepped;
  distinct(parameters, stepped);
  std::vector<std::string> unexchanged;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (unexchanged_->is_marked(i) && stepped.count(parameters_[i].unsafeGetTensorImpl()) > 0)
      unexchanged.push_back(names_[i]);
  }
  if (unexchanged.empty()) return;
  throw UsageError(
      "prepare.raw-backward",
      {.what = str("an optimizer step on rank ", group_.rank(),
                   " with gradients that were not exchanged"),
       .got = str("loss.backward(), for ", unexchanged.front(),
                  unexchanged.size() > 1 ? str(" and ", unexchanged.size() - 1, " more") : ""),
       .expected = "accelerator.backward(loss), which exchanges gradients between the processes",
       .hint =
           "accelerator.backward() has the options retain_graph, create_graph and inputs too. To "
           "train without exchanges, use accelerator.no_sync(model) or LocalSGD"});
}

void DataParallelModel::mark_cleared(const std::vector<at::Tensor>& parameters) {
  if (!unexchanged_->any()) return;
  TensorSet cleared;
  distinct(parameters, cleared);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (cleared.count(parameters_[i].unsafeGetTensorImpl()) > 0) unexchanged_->clear(i);
  }
}

void DataParallelModel::throw_unused(const std::vector<std::string>& unused) const {
  throw UsageError(
      "prepare.unused-parameters",
      {.what = str("a backward pass on rank ", group_.rank(), " that does not use all parameters"),
       .got = "no gradient of " + join(unused, ", "),
       .expected = "gradients of every parameter, because the other processes wait for them",
       .hint =
           "set AcceleratorOptions{.ddp = {.find_unused_parameters = true}}, or freeze them with "
           "requires_grad_(false)"});
}

at::Tensor DataParallelModel::zero_loss(const Leaves* some) const {
  at::Tensor zero;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i];
    if (some && some->count(parameter.unsafeGetTensorImpl()) == 0) continue;
    const at::Tensor one =
        sparse_[i] ? at::embedding(parameter, at::empty({0}, parameter.options().dtype(at::kLong)),
                                   /*padding_idx=*/-1, /*scale_grad_by_freq=*/false,
                                   /*sparse=*/true)
                         .sum()
                   : parameter.flatten().slice(0, 0, 1).sum() * 0;
    zero = zero.defined() ? zero + one.to(zero.device()) : one;
  }
  return zero;
}

// Works in buckets of bucket_cap_mb MiB, so that a large model is not in memory twice.
void DataParallelModel::average() {
  const torch::NoGradGuard no_grad;
  update_parameters();
  const std::size_t cap = static_cast<std::size_t>(options_.bucket_cap_mb) * kMiB;
  const auto buckets = c10d::compute_bucket_assignment_by_size(parameters_, {cap});
  for (const std::vector<std::size_t>& bucket : std::get<0>(buckets)) {
    std::vector<at::Tensor> flat;
    for (const std::size_t i : bucket) flat.push_back(parameters_[i].flatten());
    const at::Tensor mean = group_.reduce(at::cat(flat), Reduction::mean);
    std::int64_t at = 0;
    for (const std::size_t i : bucket) {
      parameters_[i].copy_(mean.narrow(0, at, parameters_[i].numel()).view_as(parameters_[i]));
      at += parameters_[i].numel();
    }
  }
}

}  // namespace hasten
