// File: prepare/join.h (internal)
// What the processes inside of join_uneven_inputs tell each other before each thing that they do
// together, so that one without data knows what to take part in.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

#include "hasten/process/group.h"

namespace hasten {

enum class JoinCall : std::int64_t { through, backward, buffers, rows, other };

// A backward pass outside of accumulate(), one that is exchanged before its window's end, the first
// of a micro-batch that closes a window, or a further one of that.
enum class JoinPass : std::int64_t { alone, early, closing, further };

struct JoinWord {
  JoinCall call = JoinCall::through;
  std::int64_t models = 0;  // bits, in the order in which they were prepared
  JoinPass pass = JoinPass::alone;
  std::int64_t calls = 0;  // with data, so far
};

class Join {
 public:
  Join(const Group& group, std::vector<torch::nn::Module*> models)
      : models(std::move(models)), group_(group) {}

  // Tells and hears; then `anyone()` with data, and whether all have it. Throws UsageError
  // "prepare.join-order" in every process where those with data are about to do different things.
  void say(JoinWord word);
  bool all_have_data() const { return ended_ == 0; }
  bool nobody_has_data() const { return ended_ == group_.size(); }
  // The first rank with data, and what it is about to do.
  std::int64_t leader() const { return leader_; }
  const JoinWord& word() const { return words_[static_cast<std::size_t>(leader_)]; }
  // When all are through: a rank that was to the last, and whether others were not.
  std::int64_t last_rank() const;
  bool was_uneven() const;
  bool missed_some(std::int64_t rank) const;

  // What of the models was exchanged by this process without data: gradients that are not its own.
  std::int64_t shadowed = 0;
  // Of these, those whose share of an early exchange is kept for the window's end.
  std::int64_t kept = 0;
  const std::vector<torch::nn::Module*> models;

 private:
  Group group_;
  std::vector<JoinWord> words_;
  std::int64_t calls_ = 0;
  std::int64_t ended_ = 0, leader_ = 0;
};

// Rank `from`'s bytes, of any length. A collective.
std::string broadcast_bytes(const std::string& bytes, const Group& group, std::int64_t from);

}  // namespace hasten
