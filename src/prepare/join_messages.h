// File: prepare/join_messages.h (internal)
// Messages that processes exchange before a collective that each process may reach in a different
// way. They are used inside join_uneven_inputs, where a process without data must know the next
// collective, and at the end of an accumulation window of several models.
//
//   Join join(group, models);
//   join.exchange({.call = JoinCall::buffers, .models = 1});
//   if (!join.all_have_data()) broadcast_from(join.leader());
//
// Throws UsageError "prepare.pass-order", "prepare.join-order". Thread rule: one thread at a time.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "hasten/process/group.h"

namespace hasten {

// The next operation of a process. `finished` means that it has no more data. `rows` is
// gather_for_metrics.
enum class JoinCall : std::int64_t { finished, backward, buffers, rows, other };

// The kind of a backward pass:
// - without_window: outside of accumulate().
// - early: exchanged before the end of its window.
// - closing: of a micro-batch that closes a window.
// - catch_up: replaces the closing pass in a process that skipped it. This process takes part in
//   the passes of the others.
enum class JoinPass : std::int64_t { without_window, early, closing, catch_up };

// The operation that a process announces to the others.
struct JoinMessage {
  JoinCall call = JoinCall::finished;
  std::int64_t models = 0;  // one bit per model, in the order of preparation
  JoinPass pass = JoinPass::without_window;
  std::int64_t sums_weights = 0;  // 1 if the weights of all processes are summed next
  std::int64_t calls = 0;         // this process's messages so far, except `finished`

  bool is_catch_up() const { return call == JoinCall::backward && pass == JoinPass::catch_up; }
};

// Exchanges the messages of all processes.
class MessageExchange {
 public:
  explicit MessageExchange(const Group& group) : group_(group) {}
  virtual ~MessageExchange() = default;

  // Sends this process's message and receives the messages of the others. Throws UsageError
  // "prepare.pass-order" (in a join "prepare.join-order") in every process if processes with data
  // announce different operations.
  void exchange(JoinMessage message);
  // The first rank that announces neither `finished` nor `catch_up`. If there is none, the first
  // rank that announces `catch_up`, or -1 if all processes have finished.
  std::int64_t leader() const { return leader_; }
  // The leader's message.
  const JoinMessage& leader_message() const { return messages_[static_cast<std::size_t>(leader_)]; }
  // The models of the leader's message or, if it is a `catch_up`, the models of all `catch_up`
  // messages.
  std::int64_t announced_models() const;

 protected:
  virtual const char* code() const { return "prepare.pass-order"; }
  virtual const char* situation() const { return "at the end of an accumulation window"; }

  Group group_;
  std::vector<JoinMessage> messages_;
  std::int64_t calls_ = 0;
  std::int64_t finished_count_ = 0, leader_ = 0;
};

// Exchanges the messages of processes that may run out of data.
class Join : public MessageExchange {
 public:
  Join(const Group& group, std::vector<torch::nn::Module*> models)
      : MessageExchange(group), models(std::move(models)) {}

  bool all_have_data() const { return finished_count_ == 0; }
  bool no_process_has_data() const { return finished_count_ == group_.size(); }
  // A rank that made the most calls. This and the next two functions are valid when all processes
  // have finished.
  std::int64_t last_rank() const;
  // True if the number of calls differs between ranks.
  bool was_uneven() const;
  // True if this rank made fewer calls than last_rank().
  bool is_behind(std::int64_t rank) const;

  // The models of the scope.
  const std::vector<torch::nn::Module*> models;

 protected:
  const char* code() const override { return "prepare.join-order"; }
  const char* situation() const override { return "inside join_uneven_inputs"; }
};

}  // namespace hasten
