#include "prepare/exchange_announcer.h"

#include <algorithm>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

// A message has one bit for each model and a sign.
constexpr std::size_t kMaxModels = 62;

}  // namespace

ExchangeAnnouncer::ExchangeAnnouncer(Group group,
                                     const std::vector<std::unique_ptr<DataParallelModel>>& models)
    : group_(std::move(group)), models_(models) {}

void ExchangeAnnouncer::begin_join(const std::vector<torch::nn::Module*>& models) {
  if (join_) {
    throw UsageError("prepare.nested-join", {.what = "join_uneven_inputs inside join_uneven_inputs",
                                             .hint = "pass all models to one call"});
  }
  // A group with one process has a scope too, but exchanges no messages.
  join_ = std::make_unique<Join>(group_, models);
}

void ExchangeAnnouncer::require_all_have_data(const char* call) {
  if (!join_ || group_.size() == 1) return;
  join_->exchange({.call = JoinCall::other});
  if (join_->all_have_data()) return;
  throw UsageError(
      "prepare.join-call",
      {.what = str(call, " inside join_uneven_inputs after a process has run out of data"),
       .hint = "call it after the scope; gather_for_metrics works inside"});
}

std::int64_t ExchangeAnnouncer::announce_rows() {
  if (!join_ || group_.size() == 1) return -1;
  join_->exchange({.call = JoinCall::rows});
  return join_->all_have_data() ? -1 : join_->leader();
}

std::int64_t ExchangeAnnouncer::announce_buffers(DataParallelModel* model) {
  if (!join_) return 0;
  join_->exchange({.call = JoinCall::buffers, .models = model_bits({model})});
  return join_->all_have_data() ? 0 : join_->leader();
}

const MessageExchange& ExchangeAnnouncer::announce_backward(
    const std::vector<DataParallelModel*>& models, JoinPass pass, bool sums_weights) {
  MessageExchange& messages = message_exchange();
  messages.exchange({.call = JoinCall::backward,
                     .models = model_bits(models),
                     .pass = pass,
                     .sums_weights = sums_weights});
  return messages;
}

std::vector<DataParallelModel*> ExchangeAnnouncer::models_from_bits(std::int64_t bits) const {
  std::vector<DataParallelModel*> models;
  for (std::size_t i = 0; i < models_.size(); ++i) {
    if ((bits >> i & 1) != 0) models.push_back(models_[i].get());
  }
  return models;
}

MessageExchange& ExchangeAnnouncer::message_exchange() {
  if (join_) return *join_;
  if (!message_exchange_) message_exchange_ = std::make_unique<MessageExchange>(group_);
  return *message_exchange_;
}

// Converts models to the bits that processes exchange. Bit i stands for the i-th prepared model.
std::int64_t ExchangeAnnouncer::model_bits(const std::vector<DataParallelModel*>& models) const {
  std::int64_t bits = 0;
  for (std::size_t i = 0; i < models_.size(); ++i) {
    const DataParallelModel* const model = models_[i].get();
    if (std::find(models.begin(), models.end(), model) == models.end()) continue;
    const bool is_named = !join_ || std::find(join_->models.begin(), join_->models.end(),
                                              model->module()) != join_->models.end();
    if (i >= kMaxModels || !is_named) throw_cannot_name(i);
    bits |= std::int64_t{1} << i;
  }
  return bits;
}

void ExchangeAnnouncer::throw_cannot_name(std::size_t model) const {
  throw UsageError(
      "prepare.join-model",
      {.what = join_ ? "a pass inside join_uneven_inputs of a model that was not passed to it"
                     : "an accumulation window of too many models",
       .got = str("prepared model ", model, ", counted from 0"),
       .hint = join_ ? "pass every model that the scope trains, at most 62: "
                       "join_uneven_inputs(a, b)"
                     : "prepare at most 62 models with one Accelerator"});
}

}  // namespace hasten
