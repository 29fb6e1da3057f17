#include "prepare/join.h"

#include <torch/torch.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/prepare/join.h"
#include "hasten/prepare/metrics.h"
#include "prepare/data_parallel.h"
#include "prepare/same_models.h"
#include "prepare/window.h"

namespace hasten {
namespace {

constexpr std::int64_t kNumbers = sizeof(JoinMessage) / sizeof(std::int64_t);
static_assert(sizeof(JoinMessage) == kNumbers * sizeof(std::int64_t));

const char* name_of(JoinCall call) {
  switch (call) {
    case JoinCall::finished:
      return "nothing";
    case JoinCall::backward:
      return "a backward pass that exchanges gradients";
    case JoinCall::buffers:
      return "a forward pass that broadcasts buffers";
    case JoinCall::rows:
      return "gather_for_metrics";
    case JoinCall::other:
      return "another collective";
  }
  return "";
}

}  // namespace

void MessageExchange::exchange(JoinMessage message) {
  if (message.call != JoinCall::finished) ++calls_;
  message.calls = calls_;
  at::Tensor own = at::empty({1, kNumbers}, at::kLong);
  std::memcpy(own.data_ptr(), &message, sizeof message);
  const at::Tensor all = group_.gather(own);
  messages_.resize(static_cast<std::size_t>(group_.size()));
  std::memcpy(messages_.data(), all.const_data_ptr(), messages_.size() * sizeof message);
  const auto first = [&](const auto& is_it) {
    const auto found = std::find_if(messages_.begin(), messages_.end(), is_it);
    return found == messages_.end() ? -1 : found - messages_.begin();
  };
  const auto has_finished = [](const JoinMessage& each) { return each.call == JoinCall::finished; };
  finished_count_ = std::count_if(messages_.begin(), messages_.end(), has_finished);
  leader_ =
      first([&](const JoinMessage& each) { return !has_finished(each) && !each.is_catch_up(); });
  if (leader_ < 0) leader_ = first([](const JoinMessage& each) { return each.is_catch_up(); });
  if (leader_ < 0) return;
  const JoinMessage& expected = this->leader_message();
  const bool closes = expected.call == JoinCall::backward &&
                      (expected.pass == JoinPass::closing || expected.is_catch_up());
  for (std::int64_t rank = 0; rank < group_.size(); ++rank) {
    const JoinMessage& other = messages_[static_cast<std::size_t>(rank)];
    const bool alike = other.call == expected.call && other.models == expected.models &&
                       other.pass == expected.pass && other.sums_weights == expected.sums_weights;
    const bool follows =
        other.is_catch_up() && closes && other.sums_weights == expected.sums_weights;
    if (has_finished(other) || alike || follows) continue;
    throw UsageError(
        code(),
        {.what =
             str("rank ", rank, " and rank ", leader_, " run different operations ", situation()),
         .got = name_of(other.call),
         .expected = str(name_of(expected.call), ", of the same models, as on rank ", leader_),
         .hint = "run the same loop in every process; only its length may differ"});
  }
}

std::int64_t MessageExchange::announced_models() const {
  if (!leader_message().is_catch_up()) return leader_message().models;
  std::int64_t all = 0;
  for (const JoinMessage& each : messages_) all |= each.is_catch_up() ? each.models : 0;
  return all;
}

std::int64_t Join::last_rank() const {
  const auto most = std::max_element(
      messages_.begin(), messages_.end(),
      [](const JoinMessage& a, const JoinMessage& b) { return a.calls < b.calls; });
  return most - messages_.begin();
}

bool Join::was_uneven() const {
  return std::any_of(messages_.begin(), messages_.end(), [&](const JoinMessage& message) {
    return message.calls != messages_[0].calls;
  });
}

bool Join::is_behind(std::int64_t rank) const {
  return messages_[static_cast<std::size_t>(rank)].calls <
         messages_[static_cast<std::size_t>(last_rank())].calls;
}

std::string broadcast_bytes(const std::string& bytes, const Group& group, std::int64_t from) {
  constexpr std::size_t kAtOnce = std::size_t{1} << 28;
  const auto own = at::scalar_tensor(static_cast<std::int64_t>(bytes.size()), at::kLong);
  const auto size = static_cast<std::size_t>(group.broadcast(own, from).item<std::int64_t>());
  std::string all;
  all.reserve(size);
  while (all.size() < size) {
    const bool sends = group.rank() == from;
    all += group.broadcast_object(sends ? bytes.substr(all.size(), kAtOnce) : "", from);
  }
  return all;
}

JoinScope::JoinScope(std::shared_ptr<Step> step, const std::vector<torch::nn::Module*>& models,
                     JoinOptions options)
    : step_(std::move(step)), thrown_before_(std::uncaught_exceptions()) {
  step_->begin_join(models, options.even_batches);
}

JoinScope::~JoinScope() noexcept(false) {
  std::uncaught_exceptions() > thrown_before_ ? step_->abandon_join() : step_->end_join();
}

// The part of Step for processes without data.

void Step::begin_join(const std::vector<torch::nn::Module*>& models,
                      std::optional<bool> even_batches) {
  if (join_) {
    throw UsageError("prepare.nested-join", {.what = "join_uneven_inputs inside join_uneven_inputs",
                                             .hint = "pass all models to one call"});
  }
  // A group of one process has a scope too, but exchanges no messages.
  join_ = std::make_unique<Join>(group, models);
  join_even_batches_ = even_batches;
}

void Step::abandon_join() {
  join_.reset();
  join_even_batches_.reset();
}

void Step::end_join() {
  try {
    while (group.size() > 1) {
      join_->exchange({});
      if (join_->nobody_has_data()) break;
      participate_without_data(join_->leader_message());
    }
    if (group.size() > 1 && join_->was_uneven()) copy_state_from_last_rank();
  } catch (...) {
    abandon_join();
    throw;
  }
  abandon_join();
}

void Step::require_all(const char* call) {
  if (!join_ || group.size() == 1) return;
  join_->exchange({.call = JoinCall::other});
  if (join_->all_have_data()) return;
  throw UsageError(
      "prepare.join-call",
      {.what = str(call, " inside join_uneven_inputs after a process has run out of data"),
       .hint = "call it after the scope; gather_for_metrics works inside"});
}

std::int64_t Step::announce_rows() {
  if (!join_ || group.size() == 1) return -1;
  join_->exchange({.call = JoinCall::rows});
  return join_->all_have_data() ? -1 : join_->leader();
}

MessageExchange& Step::message_exchange() {
  if (join_) return *join_;
  if (!message_exchange_) message_exchange_ = std::make_unique<MessageExchange>(group);
  return *message_exchange_;
}

void Step::announce_backward(const std::vector<DataParallel*>& models, JoinPass pass,
                             bool sums_weights) {
  message_exchange().exchange({.call = JoinCall::backward,
                               .models = model_bits(models),
                               .pass = pass,
                               .sums_weights = sums_weights});
}

// Converts models to the bits that processes exchange: bit i is the i-th prepared model.
std::int64_t Step::model_bits(const std::vector<DataParallel*>& models) const {
  std::int64_t bits = 0;
  for (std::size_t i = 0; i < parallel_.size(); ++i) {
    const auto* const model = parallel_[i].get();
    if (std::find(models.begin(), models.end(), model) == models.end()) continue;
    const bool is_named = !join_ || std::find(join_->models.begin(), join_->models.end(),
                                              model->module()) != join_->models.end();
    if (i >= 62 || !is_named) {
      throw UsageError(
          "prepare.join-model",
          {.what = join_ ? "a pass inside join_uneven_inputs of a model that was not passed to it"
                         : "an accumulation window of too many models",
           .got = str("prepared model ", i, ", counted from 0"),
           .hint = join_ ? "pass every model that the scope trains, at most 62: "
                           "join_uneven_inputs(a, b)"
                         : "prepare at most 62 models with one Accelerator"});
    }
    bits |= std::int64_t{1} << i;
  }
  return bits;
}

std::vector<DataParallel*> Step::models_from_bits(std::int64_t bits) const {
  std::vector<DataParallel*> models;
  for (std::size_t i = 0; i < parallel_.size(); ++i) {
    if ((bits >> i & 1) != 0) models.push_back(parallel_[i].get());
  }
  return models;
}

// Takes part, without data, in what the others are about to do.
void Step::participate_without_data(const JoinMessage& message) {
  switch (message.call) {
    case JoinCall::backward:
      return participate_in_backward(message);
    case JoinCall::buffers:
      for (DataParallel* const model : models_from_bits(message.models))
        model->send_buffers(join_->leader());
      return;
    case JoinCall::rows:
      return gather_without_rows(*this, join_->leader());
    case JoinCall::other:
      throw UsageError("prepare.join-call",
                       {.what = str("a collective inside join_uneven_inputs on rank ",
                                    join_->leader(), " after this process has run out of data"),
                        .hint = "call it after the scope; gather_for_metrics works inside"});
    case JoinCall::finished:
      return;
  }
}

// Takes part with zeros, or with the gradients of an open window of this process.
void Step::participate_in_backward(const JoinMessage& message) {
  const std::int64_t bits = join_->announced_models();
  const std::vector<DataParallel*> models = models_from_bits(bits);
  join_->exchanged_without_data |= bits;
  if (message.pass == JoinPass::early) return participate_in_early_exchange(models, bits);
  const auto open = message.pass == JoinPass::without_window ? nullptr : open_window_of(models);
  if (message.sums_weights != 0) {
    join_->closing = open ? open : std::make_shared<Window>(Models{});
    join_->closing->close(total_weight(join_->closing->weight(), /*differs=*/true));
  }
  if (!join_->closing) {
    throw UsageError(
        "prepare.join-order",
        {.what =
             str("rank ", group.rank(), " left join_uneven_inputs in the middle of a micro-batch"),
         .got = str("another backward pass of that micro-batch on rank ", join_->leader()),
         .expected = "complete micro-batches in every process"});
  }
  Window& window = *join_->closing;
  const bool keeps = (join_->exchanged_early & bits) != 0;
  join_->exchanged_early &= ~bits;
  for (DataParallel* const model : models) {
    const bool is_here = window.has_model(model->module()) || window.has_exchanged(model->module());
    if (!is_here && !keeps) clear_gradients({model});
  }
  exchange_window(window, models, nullptr);
}

// Takes part when the others exchange before the end of their window. If this process has
// no open window of these models, that window began after its data ended, and its old
// gradients are cleared.
void Step::participate_in_early_exchange(const std::vector<DataParallel*>& models,
                                         std::int64_t bits) {
  if (!open_window_of(models) && (join_->exchanged_early & bits) == 0) clear_gradients(models);
  join_->exchanged_early |= bits;
  reduce(models, nullptr, 0, 1.0, 1.0 / static_cast<double>(group.size()));
}

std::shared_ptr<Window> Step::open_window_of(const std::vector<DataParallel*>& models) const {
  for (const auto& window : windows_) {
    if (!window->holds_gradients()) continue;
    for (const DataParallel* const model : models) {
      if (window->has_model(model->module())) return window;
    }
  }
  return nullptr;
}

void Step::clear_gradients(const std::vector<DataParallel*>& models) {
  for (const DataParallel* const model : models) {
    for (const at::Tensor& parameter : model->parameters()) parameter.mutable_grad().reset();
  }
}

void Step::copy_state_from_last_rank() {
  const std::int64_t from = join_->last_rank();
  for (torch::nn::Module* const module : join_->models) equalize_weights(*module, group, from);
  for (std::size_t i = 0; i < parallel_.size(); ++i) {
    if ((join_->exchanged_without_data >> i & 1) != 0) clear_gradients({parallel_[i].get()});
  }
  std::erase_if(synced_states, [](const auto& each) { return each.expired(); });
  for (const auto& each : synced_states) {
    const auto own = each.lock();
    std::string state, why;
    try {
      if (group.rank() == from) state = own->state();
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
    if (join_->is_behind(group.rank())) own->restore(state);
  }
}

}  // namespace hasten
