// The call stack of another thread.
#include "process/watch/thread_stack.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>
#include <thread>

#include "hasten/base/files.h"
#include "process/watch/symbol_table.h"

namespace process_thread_stack_test {

using namespace hasten;

namespace {

std::atomic<bool> may_end = false;
std::atomic<pid_t> sleeper = 0;

[[gnu::noinline]] void sleeps_in_a_named_function() {
  sleeper = gettid();
  while (!may_end) usleep(1000);
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

class Sleeper {
 public:
  explicit Sleeper(bool blocks_signals = false)
      : thread_([blocks_signals] {
          if (blocks_signals) {
            sigset_t all;
            sigfillset(&all);
            pthread_sigmask(SIG_SETMASK, &all, nullptr);
          }
          sleeps_in_a_named_function();
        }) {
    while (sleeper == 0) usleep(100);
  }
  ~Sleeper() {
    may_end = true;
    thread_.join();
    may_end = false;
    sleeper = 0;
  }

 private:
  std::thread thread_;
};

}  // namespace

TEST_CASE("thread stack: it names functions that are not exported, with their position") {
  preload_backtrace();
  const Sleeper one;
  for (int again = 0; again < 20; ++again) {
    std::string all;
    for (const std::string& line : stack_of(sleeper, std::chrono::seconds(5))) all += line + "\n";
    CAPTURE(all);
    CHECK(all.find("sleeps_in_a_named_function() in unit_tests+0x") != std::string::npos);
    CHECK(all.find("record_frames") == std::string::npos);
  }
}

TEST_CASE("thread stack: a thread that blocks signals, and one that does not exist, have none") {
  const Sleeper one(/*blocks_signals=*/true);
  CHECK(stack_of(sleeper, std::chrono::milliseconds(50)).empty());
  CHECK(stack_of(1 << 30, std::chrono::milliseconds(50)).empty());
  CHECK(stack_of(0, std::chrono::milliseconds(50)).empty());
}

TEST_CASE("symbol table: invalid and truncated files have no names") {
  CHECK(symbol_name_at("/no such file", 0).empty());
  CHECK(symbol_name_at("/proc/self/environ", 0).empty());
  const TemporaryDirectory folder;
  const std::string file_name = (folder.path() / "symbols").string();
  std::string whole;
  {
    std::ifstream file("/proc/self/exe", std::ios::binary);
    whole.resize(1 << 16);
    file.read(whole.data(), static_cast<std::streamsize>(whole.size()));
  }
  for (const std::size_t length : {0UL, 4UL, 63UL, 64UL, 5000UL, whole.size()}) {
    std::ofstream(file_name, std::ios::binary) << whole.substr(0, length);
    CHECK(symbol_name_at(file_name, 0x1000).empty());
  }
}

TEST_CASE("thread stack: a thread that is interrupted continues, and others are not disturbed") {
  const pid_t child = fork();
  if (child == 0) {
    std::atomic<int> turns = 0, others = 0;
    std::atomic<pid_t> held = 0;
    std::thread([&] {
      held = gettid();
      while (true) ++turns;
    }).detach();
    std::thread([&] {
      while (true) ++others;
    }).detach();
    while (turns == 0 || others == 0) usleep(100);
    park_thread(held);
    usleep(50000);
    const int now = turns, others_now = others;
    usleep(50000);
    _exit(turns == now && others > others_now ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}

}  // namespace process_thread_stack_test
