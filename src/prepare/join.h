// File: prepare/join.h (internal)
// Words that processes exchange before a collective that each may reach in a different way: inside
// join_uneven_inputs, where a process without data has to know what to take part in, and at the end
// of an accumulation window of several models.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hasten/process/group.h"

namespace hasten {

class Window;

// The next operation of a process. `through`: nothing, it has no more data. `rows`:
// gather_for_metrics.
enum class JoinCall : std::int64_t { through, backward, buffers, rows, other };

// The kind of a backward pass:
// - alone: outside of accumulate().
// - early: exchanged before the end of its window.
// - closing: of a micro-batch that closes a window.
// - remaining: replaces the closing pass in a process that left it out and takes part in the passes
//   of the others.
enum class JoinPass : std::int64_t { alone, early, closing, remaining };

// The operation that a process announces to the others.
struct JoinWord {
  JoinCall call = JoinCall::through;
  std::int64_t models = 0;  // a bit for each, in the order of their preparation
  JoinPass pass = JoinPass::alone;
  std::int64_t weighs = 0;  // 1: the weights of all processes are summed next
  std::int64_t calls = 0;   // this process's words so far, without `through`

  bool is_remaining() const { return call == JoinCall::backward && pass == JoinPass::remaining; }
};

// Exchanges the words of all processes.
class Words {
 public:
  explicit Words(const Group& group) : group_(group) {}
  virtual ~Words() = default;

  // Sends this process's word and receives the others'. Throws UsageError "prepare.pass-order"
  // (in a join "prepare.join-order") in every process if those with data are about to do
  // different things.
  void say(JoinWord word);
  // The first rank with data that acts on its own or, if all with data say `remaining`, the first
  // of them. -1 if no process has data.
  std::int64_t leader() const { return leader_; }
  // The leader's word.
  const JoinWord& word() const { return words_[static_cast<std::size_t>(leader_)]; }
  // The models of that word or, if it is `remaining`, of all such words.
  std::int64_t models_of_word() const;

 protected:
  virtual const char* code() const { return "prepare.pass-order"; }
  virtual const char* place() const { return "at the end of an accumulation window"; }

  Group group_;
  std::vector<JoinWord> words_;
  std::int64_t calls_ = 0;
  std::int64_t ended_ = 0, leader_ = 0;
};

// Exchanges the words of processes that may run out of data.
class Join : public Words {
 public:
  Join(const Group& group, std::vector<torch::nn::Module*> models)
      : Words(group), models(std::move(models)) {}

  bool all_have_data() const { return ended_ == 0; }
  bool nobody_has_data() const { return ended_ == group_.size(); }
  // A rank that made the most calls. Like the next two, valid when all processes are through.
  std::int64_t last_rank() const;
  // True if ranks differ in their number of calls.
  bool was_uneven() const;
  // True if this rank made fewer calls than last_rank().
  bool missed_some(std::int64_t rank) const;

  // Bits of the models that this process exchanged without data; their gradients are not its own.
  std::int64_t shadowed = 0;
  // Bits of those among them that keep a share of an early exchange until the window's end.
  std::int64_t kept = 0;
  // In a process without data, the window that the others are closing: its own open
  // one, or an empty one.
  std::shared_ptr<Window> closing;
  const std::vector<torch::nn::Module*> models;

 protected:
  const char* code() const override { return "prepare.join-order"; }
  const char* place() const override { return "inside join_uneven_inputs"; }
};

// Returns the bytes of rank `from`, of any length. A collective.
std::string broadcast_bytes(const std::string& bytes, const Group& group, std::int64_t from);

}  // namespace hasten
