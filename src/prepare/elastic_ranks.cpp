#include "prepare/elastic_ranks.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <bit>
#include <mutex>

#include "hasten/base/detail/mix_key.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "prepare/backward_pass.h"
#include "prepare/model_consistency.h"

namespace hasten {
namespace {

[[noreturn]] void throw_option_error(const char* option, std::int64_t got,
                                     const std::string& expected, const std::string& hint) {
  throw ConfigError("prepare.elastic",
                    {.what = option, .got = str(got), .expected = expected, .hint = hint});
}

[[noreturn]] void throw_loop_error(const std::string& got, const std::string& hint) {
  throw UsageError("prepare.elastic-loop",
                   {.what = "a loop with elastic_ranks",
                    .got = got,
                    .expected = "one accumulate() for each batch of a prepared loader of hasten",
                    .hint = hint});
}

TensorList copies_of(const std::vector<at::Tensor>& tensors) {
  TensorList copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.detach().clone());
  return copies;
}

// Throws if the tree cannot add up numbers of the parameter's type.
void check_type(const at::Tensor& parameter) {
  const at::ScalarType type = parameter.scalar_type();
  if (type == at::kFloat || type == at::kDouble || has_16_bits(parameter)) return;
  throw ConfigError("prepare.elastic",
                    {.what = "a parameter of a model, with elastic_ranks",
                     .got = c10::toString(type),
                     .expected = "real floating-point numbers of 16, 32 or 64 bits",
                     .hint = "convert the model with module.to(torch::kFloat)"});
}

// Returns the gradient as a term of a sum: dense, and in float if it has 16 bits.
at::Tensor as_term(at::Tensor gradient) {
  if (!gradient.defined()) return gradient;
  if (gradient.layout() != at::kStrided) gradient = gradient.to_dense();
  if (has_16_bits(gradient)) gradient = gradient.to(at::kFloat);
  return gradient.detach().contiguous();
}

}  // namespace

void ElasticRanks::check(const ElasticOptions& options, std::int64_t processes, at::Device device) {
  if (options.ranks < 0 || !std::has_single_bit(static_cast<std::uint64_t>(options.ranks))) {
    throw_option_error(
        "elastic_ranks", options.ranks, "0, or a power of two",
        "numbers of processes that differ can add up along the same tree only with a power of two");
  }
  if (options.ranks % processes != 0) {
    throw_option_error("elastic_ranks", options.ranks,
                       str("a multiple of ", processes, ", the number of processes"),
                       "start a number of processes that divides elastic_ranks");
  }
  if (options.threads < 1)
    throw_option_error("elastic_threads", options.threads, "1 or more",
                       "set it to 1, or to the threads that each process may use");
  if (device.is_cpu()) return;
  throw ConfigError("prepare.elastic", {.what = "elastic_ranks",
                                        .got = str("the device ", device.str()),
                                        .expected = "the CPU",
                                        .hint = "set cpu (--use_cpu)"});
}

ElasticRanks::ElasticRanks(Group group, ElasticOptions options)
    : group_(std::move(group)), options_(options), all_reduce_(group_) {
  at::set_num_threads(static_cast<int>(options_.threads));
}

void ElasticRanks::add_model(torch::nn::Module& module) const {
  for (const at::Tensor& parameter : module.parameters()) check_type(parameter);
  if (group_.size() == 1) return;
  check_same_model(module, group_);
  equalize_weights(module, group_);
}

ElasticBatchInfo ElasticRanks::place_of(const BatchInfo* batch, std::int64_t pass) {
  if (batch == nullptr || !batch->elastic) {
    throw_loop_error(
        "accumulate() without a batch of a prepared loader",
        "iterate over a loader of make_loader that was prepared, with gradients enabled");
  }
  const ElasticBatchInfo& place = *batch->elastic;
  if (latest_batch_ == std::pair(place.key, pass)) {
    throw_loop_error("a second accumulate() for a batch",
                     "pass all models of the loop to one accumulate(), and add up their losses");
  }
  // A new pass does not continue a window that an earlier pass left open.
  const bool is_open = place_ && !place_->ends_window && latest_batch_.second == pass;
  if (place.position != (is_open ? place_->position + 1 : 0)) {
    throw_loop_error("a batch that was read without accumulate()",
                     "call accumulate() for each batch, even if you call no backward() for it");
  }
  if (at::get_num_threads() != options_.threads) {
    throw_loop_error(str(at::get_num_threads(), " threads for an operation"),
                     str("their number changes the bits of sums: set elastic_threads, which is ",
                         options_.threads));
  }
  latest_batch_ = {place.key, pass};
  return place;
}

void ElasticRanks::begin_micro_batch(const ElasticBatchInfo& place, const Models& models) {
  if (place.position == 0) {
    begin_window(models);
  } else if (place.begins_rank) {
    end_virtual_rank();
  }
  if (place.begins_rank) {
    clear_gradients();
    weights_.push_back(0);
    losses_.push_back(0);
  }
  place_ = place;
  seed_generator_for(place);
}

void ElasticRanks::begin_window(const Models& models) {
  drop();
  fix_seed();
  parameters_ = AccumulationWindow(models).parameters();
  std::erase_if(parameters_, [](const at::Tensor& each) { return !each.requires_grad(); });
  TensorSet seen;
  buffers_.clear();
  for (const auto& model : models) {
    for (at::Tensor& buffer : distinct(model->buffers(), seen))
      buffers_.push_back(std::move(buffer));
  }
  buffers_before_ = copies_of(buffers_);
}

void ElasticRanks::fix_seed() {
  if (seed_) return;
  const at::Generator& generator = at::detail::getDefaultCPUGenerator();
  const auto own = static_cast<std::int64_t>(generator.current_seed());
  seed_ = static_cast<std::uint64_t>(
      group_.broadcast(at::scalar_tensor(own, at::kLong)).item<std::int64_t>());
}

void ElasticRanks::seed_generator_for(const ElasticBatchInfo& place) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  if (!outer_generator_state_.defined()) outer_generator_state_ = generator.get_state();
  const std::scoped_lock lock(generator.mutex());
  generator.set_current_seed(detail::mix_key(*seed_, place.key, 0));
}

void ElasticRanks::end_micro_batch() {
  if (!outer_generator_state_.defined()) return;
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_state(std::exchange(outer_generator_state_, {}));
}

void ElasticRanks::add_pass(double weight, const at::Tensor& loss) {
  if (weight <= 0) return;
  weights_.back() += weight;
  losses_.back() += loss.item<double>() * weight;
}

void ElasticRanks::clear_gradients() const {
  for (const at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
}

void ElasticRanks::end_virtual_rank() {
  const torch::NoGradGuard no_grad;
  TensorList term;
  for (const at::Tensor& parameter : parameters_) {
    term.push_back(as_term(std::move(parameter.mutable_grad())));
    parameter.mutable_grad().reset();
  }
  gradients_.add(std::move(term));
  if (place_->virtual_rank == 0) rank_0_buffers_ = copies_of(buffers_);
  for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].copy_(buffers_before_[i]);
}

void ElasticRanks::close() {
  const torch::NoGradGuard no_grad;
  end_virtual_rank();
  end_micro_batch();
  TensorList sums = gradients_.take();
  // Each process sends the weights and losses of its virtual ranks, and which gradients and buffers
  // it has.
  std::vector<double> own = weights_;
  own.insert(own.end(), losses_.begin(), losses_.end());
  for (const at::Tensor& sum : sums) own.push_back(sum.defined());
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    own.push_back(!rank_0_buffers_.empty() && !at::equal(rank_0_buffers_[i], buffers_before_[i]));
  }
  const at::Tensor all = group_.gather(at::tensor(own, at::kDouble).unsqueeze(0));
  const auto of_virtual_ranks = [&](std::int64_t first) {
    const at::Tensor values = all.narrow(1, first, ranks_per_process()).contiguous();
    const double* const data = values.const_data_ptr<double>();
    return tree_sum({data, data + values.numel()});
  };
  const double weight = of_virtual_ranks(0), loss = of_virtual_ranks(ranks_per_process());
  loss_ = weight > 0 ? loss / weight : 0;
  const at::Tensor any = all.amax(0).contiguous();
  const double* const flags = any.const_data_ptr<double>() + 2 * ranks_per_process();
  set_gradients(std::move(sums), flags, weight);
  set_buffers(flags + parameters_.size());
  place_.reset();
  drop();
}

void ElasticRanks::set_gradients(TensorList sums, const double* has_gradient, double total_weight) {
  TensorList some;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (has_gradient[i] == 0) continue;
    if (!sums[i].defined()) {
      const at::Tensor& parameter = parameters_[i];
      sums[i] = at::zeros(parameter.sizes(),
                          has_16_bits(parameter) ? at::kFloat : parameter.scalar_type());
    }
    some.push_back(sums[i]);
  }
  all_reduce_.sum(some);
  const double factor = total_weight > 0 ? 1.0 / total_weight : 1.0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (!sums[i].defined()) continue;
    if (factor != 1.0) sums[i].mul_(factor);
    parameters_[i].mutable_grad() = sums[i].to(parameters_[i].scalar_type());
  }
}

void ElasticRanks::set_buffers(const double* has_changed) {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (has_changed[i] == 0) continue;
    if (!rank_0_buffers_.empty()) buffers_[i].copy_(rank_0_buffers_[i]);
    if (group_.size() > 1) buffers_[i].copy_(group_.broadcast(buffers_[i]));
  }
}

void ElasticRanks::drop() {
  if (place_) clear_gradients();
  place_.reset();
  gradients_.clear();
  weights_.clear();
  losses_.clear();
  buffers_before_.clear();
  rank_0_buffers_.clear();
}

void ElasticRanks::check_parameters(const std::vector<at::Tensor>& parameters) const {
  TensorSet known;
  for (const at::Tensor& each : parameters_) known.insert(each.unsafeGetTensorImpl());
  for (const at::Tensor& each : parameters) {
    if (!each.grad().defined() || known.count(each.unsafeGetTensorImpl()) > 0) continue;
    throw_loop_error("a gradient of a parameter that belongs to no model of accumulate()",
                     "register the parameter in a module, prepare it, and pass it to accumulate()");
  }
}

ElasticPosition ElasticRanks::position() {
  fix_seed();
  return {.ranks = options_.ranks, .threads = options_.threads, .seed = *seed_};
}

void ElasticRanks::check_same_run(const std::optional<ElasticPosition>& saved,
                                  const ElasticRanks* now, const std::string& checkpoint) {
  const auto check_number = [&](const char* name, std::int64_t is, std::int64_t was) {
    if (is == was) return;
    throw ConfigError("checkpoint.elastic",
                      {.what = str(name, " and ", checkpoint),
                       .got = str(is),
                       .expected = str(was, ", as in the checkpoint"),
                       .hint = "keep it for the whole run: it changes the bits "
                               "of sums. The number of processes may change"});
  };
  check_number("elastic_ranks", now ? now->ranks() : 0, saved ? saved->ranks : 0);
  if (now) check_number("the number of threads", now->options_.threads, saved->threads);
}

}  // namespace hasten
