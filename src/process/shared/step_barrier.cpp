#include "process/shared/step_barrier.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <ctime>
#include <utility>

#include "base/process_state.h"
#include "base/seconds.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

// After waiting for this long, a rank checks that the other process is alive.
constexpr std::chrono::milliseconds kLivenessCheckInterval{100};

// Sleeps while the word has the value. Returns false after kLivenessCheckInterval.
bool sleep_while(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  const timespec longest{.tv_sec = 0,
                         .tv_nsec = std::chrono::nanoseconds(kLivenessCheckInterval).count()};
  const long woken = syscall(SYS_futex, &word, FUTEX_WAIT, value, &longest, nullptr, 0);
  return woken == 0 || errno != ETIMEDOUT;
}
void wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, 1 << 20, nullptr, nullptr, 0);
}

// The numbers of steps wrap around, so the sign of their difference shows which comes first.
bool reached(std::uint32_t now, std::uint32_t step) {
  return static_cast<std::int32_t>(now - step) >= 0;
}

}  // namespace

// The state of one rank, in its own cache lines.
struct alignas(128) StepBarrier::RankSlot {
  std::atomic<std::uint32_t> step;
  std::atomic<std::uint32_t> sleepers;  // the number of ranks that wait for this one
  std::atomic<std::int64_t> process;    // set after `started`; 0 until the rank has arrived
  std::atomic<std::uint64_t> started;
  std::atomic<bool> has_left;

  // Returns false until the rank has arrived.
  bool process_has_ended() const {
    return process != 0 && has_ended(ProcessIdentity{.number = process, .started = started});
  }
};

std::size_t StepBarrier::bytes_for(std::int64_t ranks) {
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
  return static_cast<std::size_t>(ranks) * sizeof(RankSlot);
}

StepBarrier::StepBarrier(std::byte* memory, std::string task_name, std::int64_t rank,
                         std::int64_t size)
    : slots_(reinterpret_cast<RankSlot*>(memory)),
      task_name_(std::move(task_name)),
      rank_(rank),
      size_(size) {
  set_limit({});
  const ProcessIdentity own = ProcessIdentity::own();
  slot(rank_).started = own.started;
  slot(rank_).process = own.number;
}

void StepBarrier::set_limit(std::chrono::milliseconds limit) {
  limit_ = limit;
  clock_ = RunningClock();
  deadline_ = clock_.now() + limit;
}

void StepBarrier::leave() {
  RankSlot& own = slot(rank_);
  if (own.process != getpid()) return;  // this process is a fork of the rank
  own.has_left = true;
  wake_all(own.step);
}

StepBarrier::RankSlot& StepBarrier::slot(std::int64_t rank) const { return slots_[rank]; }

void StepBarrier::reach(std::uint32_t step) {
  RankSlot& own = slot(rank_);
  own.step = step;
  if (own.sleepers > 0) wake_all(own.step);
}

void StepBarrier::await(std::int64_t rank, std::uint32_t step) {
  RankSlot& other = slot(rank);
  if (reached(other.step, step)) return;
  // Sleeps at once, because a rank that spins may take the core of the rank it waits for.
  ++other.sleepers;
  bool check_liveness = false;
  while (true) {
    const std::uint32_t now = other.step;
    if (reached(now, step)) break;
    const bool ended = other.has_left || (check_liveness && other.process_has_ended());
    if (reached(other.step, step)) break;  // the step was its last one
    if (ended || clock_.now() >= deadline_) {
      --other.sleepers;
      throw_missing(rank, ended);
    }
    check_liveness = !sleep_while(other.step, now);
  }
  --other.sleepers;
}

void StepBarrier::await_all(std::uint32_t step) {
  for (std::int64_t rank = 0; rank < size_; ++rank) {
    if (rank != rank_) await(rank, step);
  }
}

void StepBarrier::throw_missing(std::int64_t rank, bool ended) const {
  const std::string what = str(task_name_, ", on rank ", rank_, ": rank ", rank);
  if (ended) {
    throw IoError("process.rank-missing",
                  {.what = what + " has ended or left the group without reaching it",
                   .hint = str("see what rank ", rank,
                               " has printed; if it has no error, make every "
                               "rank call the same collectives in the same order")});
  }
  const double limit = seconds_of(limit_);
  throw IoError("process.rank-missing",
                {.what = str(what, " has not reached it within ", significant(limit, 6), " s"),
                 .hint = "make every rank call the same collectives in the same order"});
}

}  // namespace hasten
