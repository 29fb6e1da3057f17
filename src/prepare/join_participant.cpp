#include "prepare/join_participant.h"

#include <torch/torch.h>

#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/prepare/detail/join.h"
#include "prepare/accelerator_state.h"
#include "prepare/metrics.h"
#include "prepare/model_consistency.h"

namespace hasten {
namespace {

// Returns the bytes of rank `from`, of any length. A collective.
std::string broadcast_bytes(const std::string& bytes, const Group& group, std::int64_t from) {
  constexpr std::size_t kChunkBytes = std::size_t{1} << 28;
  const auto own = at::scalar_tensor(static_cast<std::int64_t>(bytes.size()), at::kLong);
  const auto size = static_cast<std::size_t>(group.broadcast(own, from).item<std::int64_t>());
  std::string all;
  all.reserve(size);
  while (all.size() < size) {
    const bool sends = group.rank() == from;
    all += group.broadcast_object(sends ? bytes.substr(all.size(), kChunkBytes) : "", from);
  }
  return all;
}

void clear_gradients(const std::vector<DataParallelModel*>& models) {
  for (const DataParallelModel* const model : models) {
    for (const at::Tensor& parameter : model->parameters()) parameter.mutable_grad().reset();
  }
}

}  // namespace

JoinScope::JoinScope(std::shared_ptr<AcceleratorState> state,
                     const std::vector<torch::nn::Module*>& models, JoinOptions options)
    : state_(std::move(state)), uncaught_exceptions_(std::uncaught_exceptions()) {
  state_->check_without_elastic_ranks("join_uneven_inputs()");
  state_->gradients.begin_join(models);
  state_->loaders.set_even_batches(options.even_batches);
}

JoinScope::~JoinScope() noexcept(false) {
  // The scope ends for this process even if an exchange throws.
  struct JoinCleanup {
    AcceleratorState& state;
    ~JoinCleanup() {
      state.gradients.announcer().end_join();
      state.loaders.set_even_batches(std::nullopt);
    }
  } const end{*state_};
  const bool unwinds = std::uncaught_exceptions() > uncaught_exceptions_;
  if (!unwinds) JoinParticipant(*state_).run();
}

JoinParticipant::JoinParticipant(AcceleratorState& state)
    : state_(state), gradients_(state.gradients), join_(*state.gradients.announcer().join()) {}

void JoinParticipant::run() {
  if (state_.group.size() == 1) return;
  for (;;) {
    join_.exchange({});
    if (join_.no_process_has_data()) break;
    take_part(join_.leader_message());
  }
  if (join_.was_uneven()) copy_state_from_last_rank();
}

// Takes part, without data, in the next operation of the other processes.
void JoinParticipant::take_part(const JoinMessage& message) {
  switch (message.call) {
    case JoinCall::backward:
      return take_part_in_backward(message);
    case JoinCall::buffers:
      for (DataParallelModel* const model : gradients_.announcer().models_from_bits(message.models))
        model->send_buffers(join_.leader());
      return;
    case JoinCall::rows:
      return gather_without_rows(state_, join_.leader());
    case JoinCall::other:
      throw UsageError("prepare.join-call",
                       {.what = str("a collective inside join_uneven_inputs on rank ",
                                    join_.leader(), " after this process has run out of data"),
                        .hint = "call it after the scope; gather_for_metrics works inside"});
    case JoinCall::finished:
      return;
  }
}

// Takes part with zeros, or with the gradients of an open window of this process.
void JoinParticipant::take_part_in_backward(const JoinMessage& message) {
  const std::int64_t bits = join_.announced_models();
  const std::vector<DataParallelModel*> models = gradients_.announcer().models_from_bits(bits);
  exchanged_without_data_ |= bits;
  if (message.pass == JoinPass::early) return take_part_in_early_exchange(models, bits);
  const auto open = message.pass == JoinPass::without_window ? nullptr : open_window_of(models);
  if (message.sums_weights != 0) {
    closing_window_ = open ? open : std::make_shared<AccumulationWindow>(Models{});
    gradients_.close_with_weights(*closing_window_);
    closing_window_->mark_used();  // by the steps of the other processes
  }
  if (!closing_window_) {
    throw UsageError(
        "prepare.join-order",
        {.what = str("rank ", state_.group.rank(),
                     " left join_uneven_inputs in the middle of a micro-batch"),
         .got = str("another backward pass of that micro-batch on rank ", join_.leader()),
         .expected = "complete micro-batches in every process"});
  }
  AccumulationWindow& window = *closing_window_;
  const bool keeps = (exchanged_early_ & bits) != 0;
  exchanged_early_ &= ~bits;
  for (DataParallelModel* const model : models) {
    const bool is_here = window.has_model(model->module()) || window.has_exchanged(model->module());
    if (!is_here && !keeps) clear_gradients({model});
  }
  gradients_.exchange_window(window, models, nullptr);
}

// Takes part when the other processes exchange before the end of their window. If this process has
// no open window of these models, the window began after its data ended, so it clears its old
// gradients.
void JoinParticipant::take_part_in_early_exchange(const std::vector<DataParallelModel*>& models,
                                                  std::int64_t bits) {
  if (!open_window_of(models) && (exchanged_early_ & bits) == 0) clear_gradients(models);
  exchanged_early_ |= bits;
  gradients_.exchange_zeros(models);
}

std::shared_ptr<AccumulationWindow> JoinParticipant::open_window_of(
    const std::vector<DataParallelModel*>& models) const {
  std::vector<const torch::nn::Module*> modules;
  for (const DataParallelModel* const model : models) modules.push_back(model->module());
  return state_.accumulation.open_window_of(modules);
}

void JoinParticipant::copy_state_from_last_rank() {
  const Group& group = state_.group;
  const std::int64_t from = join_.last_rank();
  for (torch::nn::Module* const module : join_.models) equalize_weights(*module, group, from);
  clear_gradients(gradients_.announcer().models_from_bits(exchanged_without_data_));
  for (const auto& each : state_.synced_states.all()) {
    std::string state, why;
    try {
      if (group.rank() == from) state = each->state();
    } catch (const std::exception& error) {
      why = error.what();
    }
    state = broadcast_bytes(state, group, from);
    if (state.empty()) {
      throw UsageError("prepare.join-state",
                       {.what = str("rank ", from,
                                    " could not serialize an optimizer or scheduler for the "
                                    "processes that ran out of data"),
                        .got = why,
                        .hint = "implement save() and load() in the optimizer"});
    }
    if (join_.is_behind(group.rank())) each->restore(state);
  }
}

}  // namespace hasten
