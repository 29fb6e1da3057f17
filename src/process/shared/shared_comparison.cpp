// Compares a number between the ranks of one machine in shared memory.
#include <atomic>
#include <utility>

#include "process/backend/call_checker.h"
#include "process/shared/shared_memory.h"
#include "process/shared/step_barrier.h"

namespace hasten {
namespace {

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

std::unique_ptr<NumberComparison> make_shared_comparison(c10d::Store& store,
                                                         const RankOptions& options) {
  auto memory =
      shared_memory(store, "agreement", options, SharedComparison::bytes_for(options.size));
  if (!memory) return nullptr;
  return std::make_unique<SharedComparison>(std::move(memory), options);
}

}  // namespace hasten
