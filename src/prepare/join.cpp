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

constexpr std::int64_t kNumbers = sizeof(JoinWord) / sizeof(std::int64_t);
static_assert(sizeof(JoinWord) == kNumbers * sizeof(std::int64_t));

const char* name_of(JoinCall call) {
  switch (call) {
    case JoinCall::through:
      return "nothing more";
    case JoinCall::backward:
      return "a backward pass that exchanges gradients";
    case JoinCall::buffers:
      return "a forward pass that exchanges buffers";
    case JoinCall::rows:
      return "gather_for_metrics";
    case JoinCall::other:
      return "another collective";
  }
  return "";
}

}  // namespace

void Join::say(JoinWord word) {
  if (word.call != JoinCall::through) ++calls_;
  word.calls = calls_;
  at::Tensor own = at::empty({1, kNumbers}, at::kLong);
  std::memcpy(own.data_ptr(), &word, sizeof word);
  const at::Tensor all = group_.gather(own);
  words_.resize(static_cast<std::size_t>(group_.size()));
  std::memcpy(words_.data(), all.const_data_ptr(), words_.size() * sizeof word);
  ended_ = 0;
  leader_ = -1;
  for (std::int64_t rank = group_.size() - 1; rank >= 0; --rank) {
    words_[static_cast<std::size_t>(rank)].call == JoinCall::through ? void(++ended_)
                                                                     : void(leader_ = rank);
  }
  if (leader_ < 0) return;
  for (std::int64_t rank = 0; rank < group_.size(); ++rank) {
    const JoinWord& other = words_[static_cast<std::size_t>(rank)];
    const JoinWord& first = this->word();
    const bool same =
        other.call == JoinCall::through ||
        (other.call == first.call && other.models == first.models && other.pass == first.pass);
    if (same) continue;
    throw UsageError(
        "prepare.join-order",
        {.what = str("rank ", rank, " and rank ", leader_,
                     " do different things inside of join_uneven_inputs"),
         .got = name_of(other.call),
         .expected = str(name_of(first.call), ", of the same models, as on rank ", leader_),
         .hint = "let every process run the same loop; only its length may differ"});
  }
}

std::int64_t Join::last_rank() const {
  const auto most =
      std::max_element(words_.begin(), words_.end(),
                       [](const JoinWord& a, const JoinWord& b) { return a.calls < b.calls; });
  return most - words_.begin();
}

bool Join::was_uneven() const {
  return std::any_of(words_.begin(), words_.end(),
                     [&](const JoinWord& word) { return word.calls != words_[0].calls; });
}

bool Join::missed_some(std::int64_t rank) const {
  return words_[static_cast<std::size_t>(rank)].calls <
         words_[static_cast<std::size_t>(last_rank())].calls;
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

JoinUnevenInputs::JoinUnevenInputs(std::shared_ptr<Step> step,
                                   const std::vector<torch::nn::Module*>& models,
                                   JoinOptions options)
    : step_(std::move(step)), thrown_before_(std::uncaught_exceptions()) {
  step_->begin_join(models, options.even_batches);
}

JoinUnevenInputs::~JoinUnevenInputs() noexcept(false) {
  std::uncaught_exceptions() > thrown_before_ ? step_->abandon_join() : step_->end_join();
}

// The part of Step that is about processes without data.

void Step::begin_join(const std::vector<torch::nn::Module*>& models,
                      std::optional<bool> even_batches) {
  if (join_) {
    throw UsageError("prepare.nested-join", {.what = "join_uneven_inputs inside of another",
                                             .hint = "hand all models to one call"});
  }
  // A group of one has a scope too, in which nobody else is heard.
  join_ = std::make_unique<Join>(group, models);
  even_batches_here_ = even_batches;
}

void Step::abandon_join() {
  join_.reset();
  even_batches_here_.reset();
}

void Step::end_join() {
  try {
    while (group.size() > 1) {
      join_->say({});
      if (join_->nobody_has_data()) break;
      shadow(join_->word());
    }
    if (group.size() > 1 && join_->was_uneven()) take_over();
  } catch (...) {
    abandon_join();
    throw;
  }
  abandon_join();
}

void Step::require_all(const char* call) {
  if (!join_ || group.size() == 1) return;
  join_->say({.call = JoinCall::other});
  if (join_->all_have_data()) return;
  throw UsageError("prepare.join-call",
                   {.what = str(call,
                                " inside of join_uneven_inputs, where a process has no more "
                                "data"),
                    .hint = "call it after the scope; gather_for_metrics works inside"});
}

std::int64_t Step::announce_rows() {
  if (!join_ || group.size() == 1) return -1;
  join_->say({.call = JoinCall::rows});
  return join_->all_have_data() ? -1 : join_->leader();
}

void Step::say_backward(const std::vector<DataParallel*>& models, JoinPass pass) {
  join_->say({.call = JoinCall::backward, .models = bits_of(models), .pass = pass});
}

// The models as processes tell each other of them.
std::int64_t Step::bits_of(const std::vector<DataParallel*>& models) const {
  std::int64_t bits = 0;
  for (std::size_t i = 0; i < parallel_.size(); ++i) {
    const auto* const model = parallel_[i].get();
    if (std::find(models.begin(), models.end(), model) == models.end()) continue;
    const auto& named = join_->models;
    if (i >= 62 || std::find(named.begin(), named.end(), model->module()) == named.end()) {
      throw UsageError(
          "prepare.join-model",
          {.what = "inside of join_uneven_inputs a pass of a model that it was not given",
           .got = str("model ", i, " of those that were prepared, from 0"),
           .hint = "name every model that is trained in the scope: join_uneven_inputs(a, b); at "
                   "most 62"});
    }
    bits |= std::int64_t{1} << i;
  }
  return bits;
}

void Step::shadow(const JoinWord& word) {
  switch (word.call) {
    case JoinCall::backward:
      return shadow_backward(word);
    case JoinCall::buffers:
      for (std::size_t i = 0; i < parallel_.size(); ++i) {
        if ((word.models >> i & 1) != 0) parallel_[i]->send_buffers(join_->leader());
      }
      return;
    case JoinCall::rows:
      return gather_no_rows(*this, join_->leader());
    case JoinCall::other:
      throw UsageError("prepare.join-call",
                       {.what = str("a collective inside of join_uneven_inputs on rank ",
                                    join_->leader(), ", where this process has no more data"),
                        .hint = "call it after the scope; gather_for_metrics works inside"});
    case JoinCall::through:
      return;
  }
}

// With zeros, or with what an open window holds.
void Step::shadow_backward(const JoinWord& word) {
  std::vector<DataParallel*> models;
  for (std::size_t i = 0; i < parallel_.size(); ++i) {
    if ((word.models >> i & 1) != 0) models.push_back(parallel_[i].get());
  }
  join_->shadowed |= word.models;
  const double equal_share = 1.0 / static_cast<double>(group.size());
  if (word.pass == JoinPass::further)  // to the window's gradient, which is the same everywhere
    return reduce(models, nullptr, 0, 1.0, equal_share);
  Window* const open = word.pass != JoinPass::alone ? open_window_of(models) : nullptr;
  if (word.pass == JoinPass::early) {  // of a window that began after this process's data
    if (open == nullptr && (join_->kept & word.models) == 0) clear_gradients(models);
    join_->kept |= word.models;
    return reduce(models, nullptr, 0, 1.0, equal_share);
  }
  const double all =
      group.reduce(at::scalar_tensor(open ? open->weight : 0.0, at::kDouble)).item<double>();
  const bool keeps = (join_->kept & word.models) != 0;
  join_->kept &= ~word.models;
  if (open == nullptr && !keeps) clear_gradients(models);
  reduce(models, nullptr, 0, 1.0, all > 0 ? 1.0 / all : 0);
  if (open != nullptr) open->close();
}

Window* Step::open_window_of(const std::vector<DataParallel*>& models) const {
  for (const auto& window : windows_) {
    if (!window->holds_gradients()) continue;
    for (const DataParallel* const model : models) {
      if (window->has_model(model->module())) return window.get();
    }
  }
  return nullptr;
}

void Step::clear_gradients(const std::vector<DataParallel*>& models) {
  for (const DataParallel* const model : models) {
    for (const at::Tensor& parameter : model->parameters()) parameter.mutable_grad().reset();
  }
}

void Step::take_over() {
  const std::int64_t from = join_->last_rank();
  for (torch::nn::Module* const module : join_->models) equalize_weights(*module, group, from);
  for (std::size_t i = 0; i < parallel_.size(); ++i) {
    if ((join_->shadowed >> i & 1) != 0) clear_gradients({parallel_[i].get()});
  }
  std::erase_if(followed, [](const auto& each) { return each.expired(); });
  for (const auto& each : followed) {
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
                                    " could not hand its optimizer over to the "
                                    "processes that ran out of data"),
                        .got = why,
                        .hint = "the optimizer needs save() and load()"});
    }
    if (join_->missed_some(group.rank())) own->follow(state);
  }
}

}  // namespace hasten
