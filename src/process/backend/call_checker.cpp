#include "process/backend/call_checker.h"

#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "process/consensus/comparison.h"
#include "process/consensus/store_exchange.h"
#include "process/shared/shared_memory.h"
#include "process/shared/step_barrier.h"

namespace hasten {
namespace {

// In each round a rank sends the least and the greatest number that it knows. After round j,
// counted from 0, each rank knows the least and the greatest number of 2^(j+1) ranks.
class MessageComparison : public NumberComparison {
 public:
  explicit MessageComparison(c10::intrusive_ptr<c10d::Backend> backend)
      : backend_(std::move(backend)) {}

  bool is_same_on_all_ranks(std::uint64_t number) override {
    const int size = backend_->getSize(), rank = backend_->getRank();
    auto minimum = static_cast<std::int64_t>(number), maximum = minimum;
    for (int distance = 1; distance < size; distance *= 2) {
      std::vector<at::Tensor> sent = {at::tensor({minimum, maximum}, at::kLong)},
                              received = {at::empty({2}, at::kLong)};
      const auto receive_work = backend_->recv(received, (rank + size - distance) % size, distance);
      const auto send_work = backend_->send(sent, (rank + distance) % size, distance);
      receive_work->wait();
      send_work->wait();
      const auto* const other = received[0].const_data_ptr<std::int64_t>();
      minimum = std::min(minimum, other[0]);
      maximum = std::max(maximum, other[1]);
    }
    return minimum == maximum;
  }

 private:
  c10::intrusive_ptr<c10d::Backend> backend_;
};

// The numbers of one rank, in its own cache lines. A rank is at most one round ahead of another,
// so two numbers are enough.
struct alignas(128) RankNumbers {
  std::atomic<std::uint64_t> numbers[2];
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

class SharedComparison : public NumberComparison {
 public:
  SharedComparison(std::unique_ptr<SharedMemory> memory, const RankOptions& options)
      : memory_(std::move(memory)),
        options_(options),
        barrier_(memory_->data(), "a comparison of calls", options.rank, options.size),
        numbers_(reinterpret_cast<RankNumbers*>(memory_->data() +
                                                StepBarrier::bytes_for(options.size))) {}

  static std::size_t bytes_for(std::int64_t ranks) {
    return StepBarrier::bytes_for(ranks) + static_cast<std::size_t>(ranks) * sizeof(RankNumbers);
  }

  bool is_same_on_all_ranks(std::uint64_t number) override {
    const std::uint32_t round = ++rounds_;
    numbers_[options_.rank].numbers[round % 2] = number;
    barrier_.set_limit(options_.limit);
    barrier_.reach(round);
    barrier_.await_all(round);
    bool all = true;
    for (std::int64_t rank = 0; rank < options_.size; ++rank)
      all = all && numbers_[rank].numbers[round % 2] == number;
    return all;
  }

 private:
  std::unique_ptr<SharedMemory> memory_;
  RankOptions options_;
  StepBarrier barrier_;
  RankNumbers* numbers_;
  std::uint32_t rounds_ = 0;
};

}  // namespace

std::unique_ptr<NumberComparison> make_message_comparison(
    c10::intrusive_ptr<c10d::Backend> backend) {
  return std::make_unique<MessageComparison>(std::move(backend));
}

std::unique_ptr<NumberComparison> make_shared_comparison(c10d::Store& store,
                                                         const RankOptions& options) {
  auto memory =
      shared_memory(store, "agreement", options, SharedComparison::bytes_for(options.size));
  if (!memory) return nullptr;
  return std::make_unique<SharedComparison>(std::move(memory), options);
}

CallChecker::CallChecker(std::unique_ptr<NumberComparison> comparison,
                         c10::intrusive_ptr<c10d::Store> store, const RankOptions& options)
    : comparison_(std::move(comparison)), store_(std::move(store)), options_(options) {}

void CallChecker::check(const Call& call) {
  ++checked_;
  if (!comparison_->is_same_on_all_ranks(call.fingerprint)) throw_calls_differ(call);
}

void CallChecker::throw_calls_differ(const Call& call) {
  const auto texts =
      gather_texts(*store_, str("agreement/", checked_), options_.rank, options_.size, call.text());
  const std::vector<std::optional<std::string>> texts_of_ranks(texts.begin(), texts.end());
  Disagreement disagreement = find_disagreement(texts_of_ranks);
  if (disagreement.different_ranks
          .empty()) {  // the texts are equal, so tensors that they do not show differ
    disagreement.majority_text = "tensors of the same types and shapes on every rank";
    disagreement.first_different_text = call.text();
    disagreement.majority_ranks = {};
  }
  const std::string where = disagreement.different_ranks.empty()
                                ? "between ranks"
                                : "on " + ranks_text(disagreement.different_ranks);
  throw UsageError(
      "process.calls-differ",
      {.what = str("the group's ", ordinal(checked_), " collective differs ", where),
       .got = disagreement.first_different_text,
       .expected = disagreement.majority_ranks.empty()
                       ? disagreement.majority_text
                       : str(disagreement.majority_text, ", as on ",
                             ranks_text(disagreement.majority_ranks)),
       .hint = "make every rank call the same collectives in the same order, with the same types "
               "and shapes; pad_across_processes makes shapes equal"});
}

}  // namespace hasten
