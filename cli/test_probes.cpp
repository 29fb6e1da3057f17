#include "test_probes.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "base/child_process.h"

namespace hasten::cli {
namespace {

[[noreturn]] void wait_forever() {
  while (true) pause();
}

int killed_once(const Worker& worker) {
  print_probe_line(worker);
  if (worker.attempt > 0) return 0;
  if (worker.rank == 1) kill(getpid(), SIGKILL);
  wait_forever();
}

int fails(const Worker& worker) {
  if (worker.rank != 1) wait_forever();
  print_probe_line(worker);
  std::fprintf(stderr, "%s\n", kLastLine);
  return kFailureCode;
}

[[noreturn]] void run_forever(const Worker& worker) {
  const ChildProcess child({.signal_at_parent_end = 0}, [] {
    setsid();  // leaves the rank's group
    wait_forever();
  });
  print_probe_line(worker, child.number());
  wait_forever();
}

}  // namespace

// test_machine.cpp reads this line. The clock is the same in every process of the machine.
void print_probe_line(const Worker& worker, pid_t child) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  std::printf(
      "probe rank=%lld world=%lld machine=%lld attempt=%lld port=%d pid=%d child=%d at=%lld\n",
      static_cast<long long>(worker.rank), static_cast<long long>(worker.world_size),
      static_cast<long long>(worker.machine_rank), static_cast<long long>(worker.attempt),
      worker.master_port, static_cast<int>(getpid()), static_cast<int>(child),
      static_cast<long long>(std::chrono::duration_cast<std::chrono::microseconds>(now).count()));
  std::fflush(stdout);
}

int run_probe(const std::string& name) {
  const Worker worker = this_worker();
  if (name == "killed-once") return killed_once(worker);
  if (name == "fails") return fails(worker);
  if (name == "waits") run_forever(worker);
  print_probe_line(worker);
  return 0;
}

}  // namespace hasten::cli
