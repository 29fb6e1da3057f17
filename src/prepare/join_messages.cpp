#include "prepare/join_messages.h"

#include <torch/torch.h>

#include <algorithm>
#include <cstring>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

constexpr std::int64_t kMessageNumbers = sizeof(JoinMessage) / sizeof(std::int64_t);
static_assert(sizeof(JoinMessage) == kMessageNumbers * sizeof(std::int64_t));

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
  at::Tensor own = at::empty({1, kMessageNumbers}, at::kLong);
  std::memcpy(own.data_ptr(), &message, sizeof message);
  const at::Tensor all = group_.gather(own);
  messages_.resize(static_cast<std::size_t>(group_.size()));
  std::memcpy(messages_.data(), all.const_data_ptr(), messages_.size() * sizeof message);
  const auto first = [&](const auto& matches) {
    const auto found = std::find_if(messages_.begin(), messages_.end(), matches);
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
  const auto maximum = std::max_element(
      messages_.begin(), messages_.end(),
      [](const JoinMessage& a, const JoinMessage& b) { return a.calls < b.calls; });
  return maximum - messages_.begin();
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

}  // namespace hasten
