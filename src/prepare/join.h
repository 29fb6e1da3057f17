// File: prepare/join.h (internal)
// What processes tell each other before something that they do together and that each of them may
// reach in another way: inside of join_uneven_inputs, where one without data has to know what to
// take part in, and at the end of an accumulation window of several models.
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

enum class JoinCall : std::int64_t { through, backward, buffers, rows, other };

// A backward pass outside of accumulate(); one that is exchanged before its window's end; one of a
// micro-batch that closes a window; what takes the place of that one in a process which left it
// out, and takes part in the passes of the others.
enum class JoinPass : std::int64_t { alone, early, closing, remaining };

struct JoinWord {
  JoinCall call = JoinCall::through;
  std::int64_t models = 0;  // bits, in the order in which they were prepared
  JoinPass pass = JoinPass::alone;
  std::int64_t weighs = 0;  // 1: the weights of all processes are added up next
  std::int64_t calls = 0;   // with data, so far

  bool is_remaining() const { return call == JoinCall::backward && pass == JoinPass::remaining; }
};

// Exchanges a word of each process, which describes what that process is about to do.
class Words {
 public:
  explicit Words(const Group& group) : group_(group) {}
  virtual ~Words() = default;

  // Tells and hears. Throws UsageError "prepare.pass-order", in a join "prepare.join-order", in
  // every process where those with data are about to do different things.
  void say(JoinWord word);
  // The first rank with data whose word is its own doing, and that word. Where all that have data
  // say `remaining`, the first of them, and the models of them all.
  std::int64_t leader() const { return leader_; }
  const JoinWord& word() const { return words_[static_cast<std::size_t>(leader_)]; }
  std::int64_t models_of_word() const;

 protected:
  virtual const char* code() const { return "prepare.pass-order"; }
  virtual const char* place() const { return "at the end of an accumulation window"; }

  Group group_;
  std::vector<JoinWord> words_;
  std::int64_t calls_ = 0;
  std::int64_t ended_ = 0, leader_ = 0;
};

// The words of processes that may run out of data.
class Join : public Words {
 public:
  Join(const Group& group, std::vector<torch::nn::Module*> models)
      : Words(group), models(std::move(models)) {}

  bool all_have_data() const { return ended_ == 0; }
  bool nobody_has_data() const { return ended_ == group_.size(); }
  // When all are through: a rank that was to the last, and whether others were not.
  std::int64_t last_rank() const;
  bool was_uneven() const;
  bool missed_some(std::int64_t rank) const;

  // What of the models was exchanged by this process without data: gradients that are not its own.
  std::int64_t shadowed = 0;
  // Of these, those whose share of an early exchange is kept for the window's end.
  std::int64_t kept = 0;
  // In a process without data, the window that the others are closing: its own that was open, or an
  // empty one.
  std::shared_ptr<Window> closing;
  const std::vector<torch::nn::Module*> models;

 protected:
  const char* code() const override { return "prepare.join-order"; }
  const char* place() const override { return "inside of join_uneven_inputs"; }
};

// Rank `from`'s bytes, of any length. A collective.
std::string broadcast_bytes(const std::string& bytes, const Group& group, std::int64_t from);

}  // namespace hasten
