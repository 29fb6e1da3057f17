#include "process/seats.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <ctime>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "process/process_state.h"

namespace hasten {
namespace {

// After this time of waiting a rank checks that the other process is alive.
constexpr std::chrono::milliseconds kDoubtAfter{100};

// Sleeps while the word has the value. Returns false after kDoubtAfter.
bool sleep_while(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  const timespec longest{.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(kDoubtAfter).count()};
  const long woken = syscall(SYS_futex, &word, FUTEX_WAIT, value, &longest, nullptr, 0);
  return woken == 0 || errno != ETIMEDOUT;
}
void wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, 1 << 20, nullptr, nullptr, 0);
}

// The numbers of steps wrap around, so the sign of their difference tells which comes first.
bool reached(std::uint32_t now, std::uint32_t step) {
  return static_cast<std::int32_t>(now - step) >= 0;
}

}  // namespace

// The state of one rank, in its own cache lines.
struct alignas(128) Seats::Seat {
  std::atomic<std::uint32_t> step;
  std::atomic<std::uint32_t> sleepers;  // the number of ranks that wait for this one
  std::atomic<std::int64_t> process;    // set after `started`; 0 until the rank has come
  std::atomic<std::uint64_t> started;
  std::atomic<bool> gone;

  // False as long as the rank has not come.
  bool process_has_ended() const {
    return process != 0 && has_ended(ProcessIdentity{.number = process, .started = started});
  }
};

std::size_t Seats::bytes_for(std::int64_t ranks) {
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
  return static_cast<std::size_t>(ranks) * sizeof(Seat);
}

Seats::Seats(std::byte* memory, std::string task, std::int64_t rank, std::int64_t size)
    : seats_(reinterpret_cast<Seat*>(memory)), task_(std::move(task)), rank_(rank), size_(size) {
  set_limit({});
  const ProcessIdentity own = ProcessIdentity::own();
  seat(rank_).started = own.started;
  seat(rank_).process = own.number;
}

void Seats::set_limit(std::chrono::milliseconds limit) {
  limit_ = limit;
  clock_ = RunningClock();
  deadline_ = clock_.now() + limit;
}

void Seats::leave() {
  Seat& own = seat(rank_);
  if (own.process != getpid()) return;  // this process is a fork of the rank
  own.gone = true;
  wake_all(own.step);
}

Seats::Seat& Seats::seat(std::int64_t rank) const { return seats_[rank]; }

void Seats::reach(std::uint32_t step) {
  Seat& own = seat(rank_);
  own.step = step;
  if (own.sleepers > 0) wake_all(own.step);
}

void Seats::await(std::int64_t rank, std::uint32_t step) {
  Seat& other = seat(rank);
  if (reached(other.step, step)) return;
  // Sleeps at once: a rank that spins takes the core from the rank it waits for.
  ++other.sleepers;
  bool in_doubt = false;
  while (true) {
    const std::uint32_t now = other.step;
    if (reached(now, step)) break;
    const bool ended = other.gone || (in_doubt && other.process_has_ended());
    if (reached(other.step, step)) break;  // the step was its last one
    if (ended || clock_.now() >= deadline_) {
      --other.sleepers;
      miss(rank, ended);
    }
    in_doubt = !sleep_while(other.step, now);
  }
  --other.sleepers;
}

void Seats::await_all(std::uint32_t step) {
  for (std::int64_t rank = 0; rank < size_; ++rank) {
    if (rank != rank_) await(rank, step);
  }
}

void Seats::miss(std::int64_t rank, bool ended) const {
  const double limit = std::chrono::duration<double>(limit_).count();
  throw IoError("process.rank-missing",
                {.what = str(task_, ", on rank ", rank_),
                 .got = str("rank ", rank,
                            ended ? " has ended or left the group before reaching it"
                                  : " has not reached it"),
                 .expected = str("every rank within ", significant(limit, 6), " s"),
                 .hint = "make every rank call the same collectives in the same order"});
}

}  // namespace hasten
