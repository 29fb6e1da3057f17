// Compares a number between the ranks of one machine in shared memory.
#include <atomic>
#include <utility>

#include "process/agreement.h"
#include "process/seats.h"
#include "process/shared_memory.h"

namespace hasten {
namespace {

// The numbers of one rank, in its own cache lines. A rank is at most one question ahead of another,
// so two numbers are enough.
struct alignas(128) Answer {
  std::atomic<std::uint64_t> numbers[2];
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

class InMemory : public Comparison {
 public:
  InMemory(std::unique_ptr<SharedMemory> memory, const RankOptions& options)
      : memory_(std::move(memory)),
        options_(options),
        seats_(memory_->data(), "a comparison of calls", options.rank, options.size),
        answers_(reinterpret_cast<Answer*>(memory_->data() + Seats::bytes_for(options.size))) {}

  static std::size_t bytes_for(std::int64_t ranks) {
    return Seats::bytes_for(ranks) + static_cast<std::size_t>(ranks) * sizeof(Answer);
  }

  bool same(std::uint64_t number) override {
    const std::uint32_t question = ++questions_;
    answers_[options_.rank].numbers[question % 2] = number;
    seats_.set_limit(options_.limit);
    seats_.reach(question);
    seats_.await_all(question);
    bool all = true;
    for (std::int64_t rank = 0; rank < options_.size; ++rank)
      all = all && answers_[rank].numbers[question % 2] == number;
    return all;
  }

 private:
  std::unique_ptr<SharedMemory> memory_;
  RankOptions options_;
  Seats seats_;
  Answer* answers_;
  std::uint32_t questions_ = 0;
};

}  // namespace

std::unique_ptr<Comparison> comparison_in_memory(c10d::Store& store, const RankOptions& options) {
  auto memory = shared_memory(store, "agreement", options, InMemory::bytes_for(options.size));
  if (!memory) return nullptr;
  return std::make_unique<InMemory>(std::move(memory), options);
}

}  // namespace hasten
