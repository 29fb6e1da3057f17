// Lets ranks wait for one rank in several ways. watchdog.py and the launcher check whether the
// report names that rank.
//
//   hang CASE [SECONDS]        the limit, by default 1 second
#include <ATen/ATen.h>
#include <dlfcn.h>
#include <signal.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/error.h"

using namespace hasten;

namespace {

// The function is not exported, so only the program's own symbol table has its name.
[[gnu::noinline]] void waits_for_a_file_that_never_comes() {
  while (access("/no such file", F_OK) != 0) std::this_thread::sleep_for(std::chrono::seconds(1));
  std::puts("it came");
}

// The library's constructor never returns, so this thread holds the loader's lock.
[[gnu::noinline]] void loads_a_library_that_hangs() {
  dlopen(HANG_ON_LOAD, RTLD_NOW);
  std::puts("it is loaded");
}

void print_event(const Group& group, const char* what) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::printf("rank %d pid %d %s at %.6f\n", static_cast<int>(group.rank()),
              static_cast<int>(getpid()), what, std::chrono::duration<double>(now).count());
  std::fflush(stdout);
}

struct Training {
  torch::nn::Linear net{1024, 600};
  torch::optim::SGD sgd{net->parameters(), 0.1};
};

void sleeps(const Accelerator& accelerator) {
  const Group& group = accelerator.group();
  group.gather(at::ones({4, 512}));
  print_event(group, "begins");
  if (group.rank() == 1) waits_for_a_file_that_never_comes();
  group.reduce(at::ones({3}));
}

void hangs_in_the_loader(const Accelerator& accelerator) {
  const Group& group = accelerator.group();
  group.barrier();
  print_event(group, "begins");
  if (group.rank() == 1) loads_a_library_that_hangs();
  group.barrier();
}

// The destructor of rank 0's group waits for a collective that rank 1 never enters.
void throws_with_work_under_way(const Accelerator& accelerator) {
  const Group& group = accelerator.group();
  group.barrier();
  print_event(group, "begins");
  if (group.rank() == 1) waits_for_a_file_that_never_comes();
  std::vector<at::Tensor> sum = {at::ones({3})};
  const auto work = group.native()->allreduce(sum);
  throw std::runtime_error("while a sum is under way");
}

// No rank is late, unless the processes are stopped for longer than the limit.
void waits_a_little(const Accelerator& accelerator) {
  const Group& group = accelerator.group();
  group.barrier();
  print_event(group, "begins");
  // Sleeps in short parts, because a sleep also passes while the process is stopped.
  for (int part = 0; part < 20 && group.rank() == 1; ++part)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  group.reduce(at::ones({3}));
  group.barrier();
  print_event(group, "ends");
}

// Rank 2 calls fewer collectives than the other ranks, and then waits for a file.
void stops_early(const Accelerator& accelerator) {
  const Group& group = accelerator.group();
  for (int i = 0; i < (group.rank() == 2 ? 5 : 7); ++i) {
    if (i == 5) print_event(group, "begins");
    group.reduce(at::ones({i + 1}));
  }
  if (group.rank() == 2) print_event(group, "begins");
  if (group.rank() == 2) waits_for_a_file_that_never_comes();
}

void is_stopped(const Accelerator& accelerator) {
  const Group& group = accelerator.group();
  group.barrier();
  print_event(group, "begins");
  if (group.rank() == 1) kill(getpid(), SIGSTOP);
  group.barrier();
}

// Rank 0 serves the store and is stopped.
void store_is_stopped(const Accelerator& accelerator) {
  const Group& group = accelerator.group();
  group.barrier();
  print_event(group, "begins");
  if (group.rank() == 0) kill(getpid(), SIGSTOP);
  group.barrier();
}

// All ranks run two steps; in the third step, one rank never reaches its backward pass.
void skips_backward(Accelerator& accelerator) {
  Training training;
  auto [model, optimizer] = accelerator.prepare(training.net, training.sgd);
  for (int step = 0; step < 3; ++step) {
    const at::Tensor loss = model(at::ones({2, 1024})).mean();
    if (step == 2) print_event(accelerator.group(), "begins");
    if (step == 2 && accelerator.group().rank() == 1) waits_for_a_file_that_never_comes();
    accelerator.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
  }
}

void calls_another(const Accelerator& accelerator) {
  const Group& group = accelerator.group();
  group.barrier();
  print_event(group, "begins");
  if (group.rank() == 1) {
    group.barrier();
  } else {
    const CallScope scope(group, "fold", 3);
    group.reduce(at::ones({6}), Reduction::max);
  }
}

// No rank is late: the work takes longer than the limit, and no collective waits for it.
void works_long(const Accelerator& accelerator) {
  const Group& group = accelerator.group();
  group.barrier();
  std::this_thread::sleep_for(std::chrono::milliseconds(4500));
  group.barrier();
  print_event(group, "ends");
}

// A rank's GPU runs a kernel for hours, and the next collective waits for it. LibTorch's CUDA
// library has this kernel for tests.
void starts_an_endless_kernel(const Accelerator& accelerator) {
  using Spin = void(std::int64_t cycles);
  auto* const spin = reinterpret_cast<Spin*>(dlsym(RTLD_DEFAULT, "_ZN2at4cuda5sleepEl"));
  if (spin == nullptr) throw std::runtime_error("this process has no LibTorch CUDA library");
  const Group& group = accelerator.group();
  group.barrier();
  print_event(group, "begins");
  at::Tensor sum = at::ones({3}, accelerator.device());
  constexpr std::int64_t kCycles = std::int64_t{1} << 44;  // hours
  if (group.rank() == 1) spin(kCycles);
  group.reduce(sum + 1);
}

void is_never_there(const Accelerator&) {}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<void(Accelerator&)>> cases = {
      {"sleeps", sleeps},
      {"stops early", stops_early},
      {"is stopped", is_stopped},
      {"store is stopped", store_is_stopped},
      {"skips backward", skips_backward},
      {"calls another", calls_another},
      {"works long", works_long},
      {"hangs in the loader", hangs_in_the_loader},
      {"throws with work under way", throws_with_work_under_way},
      {"waits a little", waits_a_little},
      {"starts an endless kernel", starts_an_endless_kernel},
      {"is never there", is_never_there}};
  const std::string name = argc > 1 ? argv[1] : "";
  const double seconds = argc > 2 ? std::atof(argv[2]) : 1;
  if (name == "is never there" && std::string(std::getenv("RANK")) == "1")
    waits_for_a_file_that_never_comes();
  std::printf("what was printed before");  // has no line end, so it stays buffered
  try {
    Accelerator accelerator({.cpu = name != "starts an endless kernel",
                             .process_group = {.timeout = std::chrono::milliseconds(
                                                   static_cast<std::int64_t>(seconds * 1e3))}});
    std::printf("\n");
    cases.at(name)(accelerator);
    std::printf("last words in the stream");
    accelerator.wait_for_everyone();
  } catch (const Error& error) {
    std::fprintf(stderr, "error[%s]: %s\n", error.code().c_str(), error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "exception: %s\n", error.what());
    return 1;
  }
}
