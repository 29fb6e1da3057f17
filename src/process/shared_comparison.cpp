// Ranks of one machine compare a number in memory that all of them have: no message, and no call of
// the system where all come at the same time.
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <ctime>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "process/agreement.h"
#include "process/all_say.h"

namespace hasten {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kDoubtAfter{100};  // that the other is alive

// One a rank, in a line of the cache of its own. A rank is at most one question ahead of another:
// two numbers are enough.
struct alignas(128) Seat {
  std::atomic<std::uint32_t> questions;  // that this rank has answered
  std::atomic<std::uint32_t> sleepers;   // who wait for it
  std::atomic<std::uint64_t> numbers[2];
  std::atomic<std::int64_t> process;
  std::atomic<bool> gone;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

class Memory {
 public:
  // Made where `make`; empty() where the system refuses.
  Memory(const std::string& name, std::size_t bytes, bool make) : bytes_(bytes) {
    const int flags = make ? O_RDWR | O_CREAT | O_EXCL : O_RDWR;
    const int file = shm_open(name.c_str(), flags, 0600);
    if (file < 0) return;
    const bool sized = !make || ftruncate(file, static_cast<off_t>(bytes)) == 0;
    void* const at =
        sized ? mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    close(file);
    at_ = at == MAP_FAILED ? nullptr : at;
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (at_ != nullptr) munmap(at_, bytes_);
  }
  bool empty() const { return at_ == nullptr; }
  Seat* seats() const { return static_cast<Seat*>(at_); }

 private:
  void* at_ = nullptr;
  std::size_t bytes_;
};

// Until the word is another one, or the time is over.
void sleep_while(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  const timespec longest{.tv_sec = 0, .tv_nsec = std::chrono::nanoseconds(kDoubtAfter).count()};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &longest, nullptr, 0);
}
void wake_all(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, 1 << 20, nullptr, nullptr, 0);
}

class InMemory : public Comparison {
 public:
  InMemory(std::unique_ptr<Memory> memory, const AgreementOptions& options)
      : memory_(std::move(memory)), options_(options) {}
  ~InMemory() override {
    own().gone = true;
    wake_all(own().questions);
  }

  bool same(std::uint64_t number) override {
    const std::uint32_t question = ++questions_;
    own().numbers[question % 2] = number;
    own().questions = question;
    if (own().sleepers > 0) wake_all(own().questions);
    bool all = true;
    for (std::int64_t rank = 0; rank < options_.size; ++rank) {
      if (rank == options_.rank) continue;
      wait_for(rank, question);
      all = all && seat(rank).numbers[question % 2] == number;
    }
    return all;
  }

 private:
  Seat& seat(std::int64_t rank) const { return memory_->seats()[rank]; }
  Seat& own() const { return seat(options_.rank); }

  // Numbers of questions go round: a difference tells which is first.
  static bool reached(std::uint32_t now, std::uint32_t question) {
    return static_cast<std::int32_t>(now - question) >= 0;
  }

  void wait_for(std::int64_t rank, std::uint32_t question) {
    Seat& other = seat(rank);
    if (reached(other.questions, question)) return;
    // Asleep at once: one that looks again and again takes the core from what it waits for.
    const auto deadline = Clock::now() + options_.limit;
    ++other.sleepers;
    while (true) {
      const std::uint32_t now = other.questions;
      if (reached(now, question)) break;
      if (other.gone || has_ended(other) || Clock::now() >= deadline) {
        --other.sleepers;
        miss(rank, question, other.gone || has_ended(other));
      }
      sleep_while(other.questions, now);
    }
    --other.sleepers;
  }

  static bool has_ended(const Seat& other) {
    return kill(static_cast<pid_t>(other.process.load()), 0) != 0 && errno == ESRCH;
  }

  [[noreturn]] void miss(std::int64_t rank, std::uint32_t question, bool ended) const {
    const double limit = std::chrono::duration<double>(options_.limit).count();
    throw IoError(
        "process.rank-missing",
        {.what = str("collective ", question, " of a group, on rank ", options_.rank),
         .got = str("rank ", rank, ended ? " has left the group before it" : " has not come to it"),
         .expected = str("every rank within ", significant(limit, 6), " s"),
         .hint = "every rank calls the same collectives in the same order"});
  }

  std::unique_ptr<Memory> memory_;
  AgreementOptions options_;
  std::uint32_t questions_ = 0;
};

std::string new_name() {
  std::random_device random;
  return str("/hasten-", getpid(), "-", random(), "-", random());
}

}  // namespace

std::unique_ptr<Comparison> comparison_in_memory(c10d::Store& store,
                                                 const AgreementOptions& options) {
  const std::size_t bytes = static_cast<std::size_t>(options.size) * sizeof(Seat);
  const bool makes = options.rank == 0;
  std::string name = makes ? new_name() : "";
  std::unique_ptr<Memory> memory;
  if (makes) {  // zeros, as the system gives it: no question is answered
    memory = std::make_unique<Memory>(name, bytes, true);
    store.set("agreement/memory", name);
  } else {
    const auto said = store.get("agreement/memory");
    memory = std::make_unique<Memory>(std::string(said.begin(), said.end()), bytes, false);
  }
  if (!memory->empty()) memory->seats()[options.rank].process = getpid();
  const bool all = all_say(store, "agreement/opened", options.rank, options.size, !memory->empty());
  if (makes) shm_unlink(name.c_str());  // what is mapped stays, and nothing is left behind
  if (!all) return nullptr;
  return std::make_unique<InMemory>(std::move(memory), options);
}

}  // namespace hasten
