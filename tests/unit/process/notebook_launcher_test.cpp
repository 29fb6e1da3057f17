// A function that runs in several forks of this process: its results, its failures, and the memory
// that the forks share.
#include "hasten/process/notebook_launcher.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/seconds.h"
#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "hasten/process/group.h"
#include "tpu/machine/installed_tpus.h"
#include "unit/code_of.h"

namespace process_notebook_launcher_test {

using namespace hasten;

namespace {

namespace fs = std::filesystem;

Group form_group() { return Group::form(this_worker()); }

// The private memory of this process in kB.
long own_memory() {
  std::ifstream file("/proc/self/smaps_rollup");
  long total = 0, value = 0;
  for (std::string word; file >> word;) {
    if (word == "Private_Clean:" || word == "Private_Dirty:") {
      file >> value;
      total += value;
    }
  }
  return total;
}

// A model after a backward pass, which starts the threads of OpenMP and autograd before the fork.
torch::nn::Sequential used_model(std::int64_t width) {
  torch::nn::Sequential model(torch::nn::Linear(width, width), torch::nn::ReLU(),
                              torch::nn::Linear(width, width));
  const int threads = at::get_num_threads();
  at::set_num_threads(4);
  model->forward(torch::randn({64, width})).sum().backward();
  model->zero_grad();
  at::set_num_threads(threads);
  return model;
}

}  // namespace

TEST_CASE("notebook_launcher: each process has its rank, the same model and a group") {
  auto model = used_model(256);
  const TemporaryDirectory folder;
  notebook_launcher(
      [&](const std::string& name, int factor) {
        const Group group = form_group();
        const at::Tensor input = torch::ones({8, 256}) * (group.rank() + 1);
        at::Tensor loss = model->forward(input).pow(2).mean();
        loss.backward();
        const at::Tensor gradient = group.reduce(model->parameters()[0].grad(), Reduction::mean);
        const at::Tensor all = group.gather(gradient.sum().reshape({1}));
        const bool same = (all == all[0]).all().item<bool>();
        std::ofstream(folder.path() / (name + std::to_string(group.rank())))
            << (same && group.size() == 4 && factor == 7 ? "good" : "wrong");
      },
      std::tuple(std::string("rank"), 7), {.num_processes = 4, .use_cpu = true});
  for (int rank = 0; rank < 4; ++rank) {
    std::string text;
    std::ifstream(folder.path() / ("rank" + std::to_string(rank))) >> text;
    CHECK(text == "good");
  }
  CHECK_FALSE(model->parameters()[0].grad().defined());  // this process has computed nothing
  CHECK(std::getenv("RANK") == nullptr);
}

TEST_CASE("notebook_launcher: the first failure is thrown here, whatever the others wait for") {
  const auto began = std::chrono::steady_clock::now();
  try {
    notebook_launcher(
        [] {
          const Group group = form_group();
          if (group.rank() == 2) throw std::runtime_error("no such file");
          group.barrier();
        },
        {.num_processes = 4, .use_cpu = true});
    FAIL("nothing was thrown");
  } catch (const RankError& error) {
    CHECK(error.rank == 2);
    CHECK(error.exit_code() == 1);
    CHECK(std::string(error.what()).find("no such file") != std::string::npos);
  }
  CHECK(seconds_since(began) < 5);
  const auto code_for = [](const std::function<void()>& end) {
    try {
      debug_launcher([&] {
        if (std::getenv("RANK") == std::string("1")) return end();
        pause();
      });
    } catch (const RankError& error) {
      CHECK(error.rank == 1);
      return error.exit_code();
    }
    return 0;
  };
  CHECK(code_for([] { raise(SIGKILL); }) == 137);
  CHECK(code_for([] { _exit(5); }) == 5);
  CHECK(code_for([] { throw DataError("data.some", {.what = "a row"}); }) == 3);
  CHECK(code_for([] { throw 1; }) == 1);
}

TEST_CASE("notebook_launcher: a rank that was killed is blamed, not one that fails because of it") {
  const TemporaryDirectory folder;
  const fs::path killed = folder.path() / "killed";
  const pid_t program = fork();
  if (program == 0) {
    int code = 0;
    try {
      debug_launcher([&] {
        if (std::getenv("RANK") == std::string("1")) {
          kill(getppid(), SIGSTOP);  // the launching process sees both ends at once
          std::ofstream(killed) << "soon";
          raise(SIGKILL);
        }
        while (!fs::exists(killed)) usleep(1000);
        throw IoError("process.rank-missing", {.what = "rank 1"});
      });
    } catch (const RankError& error) {
      code = error.exit_code();
    } catch (...) {
      code = 1;
    }
    _exit(code);
  }
  int status = 0;
  REQUIRE(waitpid(program, &status, WUNTRACED) == program);
  REQUIRE(WIFSTOPPED(status));
  usleep(500'000);  // both ranks end meanwhile
  kill(program, SIGCONT);
  REQUIRE(waitpid(program, &status, 0) == program);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 128 + SIGKILL);
}

TEST_CASE("notebook_launcher: a rank's child processes neither delay its end nor outlive it") {
  const TemporaryDirectory folder;
  const auto began = std::chrono::steady_clock::now();
  try {
    debug_launcher([&] {
      if (std::getenv("RANK") == std::string("0")) pause();
      const pid_t left = fork();
      if (left == 0) {
        signal(SIGTERM, SIG_IGN);
        while (true) pause();
      }
      std::ofstream(folder.path() / "left") << left;
      throw std::runtime_error("a rank that leaves a process behind");
    });
    FAIL("nothing was thrown");
  } catch (const RankError& error) {
    CHECK(error.rank == 1);
    CHECK(std::string(error.what()).find("leaves a process behind") != std::string::npos);
  }
  CHECK(seconds_since(began) < 10);
  pid_t left = 0;
  std::ifstream(folder.path() / "left") >> left;
  REQUIRE(left > 0);
  const auto is_there = [&] {  // a zombie waits for its new parent
    std::string state;
    std::ifstream status("/proc/" + std::to_string(left) + "/stat");
    return status >> state >> state >> state && state != "Z";
  };
  while (is_there() && seconds_since(began) < 20) usleep(1000);
  CHECK_FALSE(is_there());
}

TEST_CASE("notebook_launcher: the long error of a user with many pipes is reported") {
  const pid_t program = fork();
  if (program == 0) {
    const rlimit many{.rlim_cur = 4096, .rlim_max = 4096};
    setrlimit(RLIMIT_NOFILE, &many);
    // Linux gives a user with more than 1,024 pipes small ones from then on, but not root.
    if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) _exit(4);
    int ends[2];
    for (int i = 0; i < 1100 && pipe(ends) == 0; ++i) {
    }
    try {
      debug_launcher([] { throw std::runtime_error(std::string(20'000, 'x')); });
    } catch (const RankError& error) {
      _exit(std::string(error.what()).find("xxx") == std::string::npos ? 2 : 0);
    } catch (...) {
      _exit(3);
    }
    _exit(1);
  }
  const auto began = std::chrono::steady_clock::now();
  int status = -1;
  while (waitpid(program, &status, WNOHANG) == 0 && seconds_since(began) < 60) usleep(10'000);
  if (status == -1) kill(program, SIGKILL);
  CHECK(status == 0);
}

TEST_CASE("notebook_launcher: a program that ignores SIGCHLD still gets failures reported") {
  const auto before = signal(SIGCHLD, SIG_IGN);
  const auto began = std::chrono::steady_clock::now();
  debug_launcher([] {});
  const auto failure_of = [](const std::function<void()>& end) -> std::string {
    try {
      debug_launcher([&] {
        if (std::getenv("RANK") == std::string("1")) return end();
        pause();
      });
    } catch (const RankError& error) {
      return std::to_string(error.rank) + " " + std::to_string(error.exit_code()) + error.what();
    }
    return "none";
  };
  const std::string thrown = failure_of([] { throw DataError("data.some", {.what = "a row"}); });
  CHECK(thrown.find("1 3") == 0);
  CHECK(thrown.find("a row") != std::string::npos);
  const std::string killed = failure_of([] { raise(SIGKILL); });
  CHECK(killed.find("1 1") == 0);
  CHECK(killed.find("its exit status is unknown") != std::string::npos);
  CHECK(seconds_since(began) < 20);
  signal(SIGCHLD, before);
}

TEST_CASE("notebook_launcher: a signal to the whole process group ends the ranks and the job") {
  const pid_t program = fork();  // in a new process group, so that the tests do not get the signal
  if (program == 0) {
    setpgid(0, 0);
    signal(SIGINT, [](int) {});  // the kernel of a notebook has a handler too
    int code = 0;
    try {
      const auto interrupt = [] {
        const Worker worker = this_worker();
        if (worker.attempt > 0) return;
        if (worker.rank == 0) kill(0 - getpgid(getppid()), SIGINT);
        while (true) pause();
      };
      notebook_launcher(interrupt, {.num_processes = 2, .use_cpu = true, .max_restarts = 2});
    } catch (const RankError& error) {
      code = error.exit_code();
    }
    _exit(code);
  }
  int status = 0;
  waitpid(program, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 128 + SIGINT);
}

TEST_CASE("notebook_launcher: all ranks restart after a failure, as often as requested") {
  const auto attempts = [](int good_at) {
    return [=] {
      const Worker worker = this_worker();
      if (worker.rank == 0 && worker.attempt < good_at) raise(SIGKILL);
      Group::form(worker).barrier();
    };
  };
  notebook_launcher(attempts(2), {.num_processes = 2, .use_cpu = true, .max_restarts = 2});
  CHECK_THROWS_AS(
      notebook_launcher(attempts(2), {.num_processes = 2, .use_cpu = true, .max_restarts = 1}),
      RankError);
}

TEST_CASE("notebook_launcher: a single process runs in this process") {
  const pid_t here = getpid();
  pid_t there = 0;
  notebook_launcher([&] { there = getpid(); });
  CHECK(here == there);
  CHECK_THROWS_AS(notebook_launcher([] { throw std::runtime_error("as it is"); }),
                  std::runtime_error);
}

TEST_CASE("notebook_launcher: state that does not survive a fork is refused") {
  const auto launch = [] { debug_launcher([] {}); };
  {
    const Accelerator accelerator({.cpu = true});
    CHECK(code_of(launch) == "process.fork-after-accelerator");
  }
  CHECK(code_of(launch) == "none");
  CHECK(code_of([] { notebook_launcher([] {}, {.num_processes = 0}); }) == "process.num-processes");
  CHECK(code_of([] {
          debug_launcher(
              [] { CHECK(code_of([] { debug_launcher([] {}); }) == "process.nested-launch"); });
        }) == "none");
  const auto inside_a_group = [] {
    const Group group = form_group();
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"})
      unsetenv(name);
    const std::string code = code_of([] { debug_launcher([] {}); });
    group.barrier();
    if (code != "process.fork-after-group") throw std::runtime_error(code);
  };
  debug_launcher(inside_a_group);
}

TEST_CASE("notebook_launcher: on TPUs there is one process for each chip") {
  if (!config::installed_tpus().empty()) {
    MESSAGE("skipped: this machine has TPUs");
    return;
  }
  const TemporaryDirectory folder;
  const auto write_variables = [&] {
    std::ofstream file(folder.path() / std::getenv("RANK"));
    for (const char* name : {"TPU_VISIBLE_DEVICES", "WORLD_SIZE", "ACCELERATE_USE_TPU",
                             "XLA_DOWNCAST_BF16", "TORCH_TPU_TOPOLOGY"}) {
      const char* const value = std::getenv(name);
      file << (value == nullptr ? "-" : value) << " ";
    }
  };
  const auto variables_of = [&](const char* rank) {
    std::string line;
    std::ifstream file(folder.path() / rank);
    std::getline(file, line);
    return line;
  };
  // The path of a plugin that is never loaded simulates a TPU.
  setenv("TPU_LIBRARY_PATH", "/nowhere/plugin.so", 1);
  setenv("TPU_VISIBLE_CHIPS", "2,5", 1);
  notebook_launcher(write_variables, {.mixed_precision = Precision::bf16, .downcast_bf16 = true});
  CHECK(variables_of("0") == "2 2 true 1 2,1,1 ");
  CHECK(variables_of("1") == "5 2 true 1 2,1,1 ");
  CHECK_FALSE(fs::exists(folder.path() / "2"));
  int forks = 0;
  const auto three = [&] { notebook_launcher([&] { ++forks; }, {.num_processes = 3}); };
  CHECK(code_of(three) == "launch.tpu-processes");
  unsetenv("TPU_VISIBLE_CHIPS");
  notebook_launcher(write_variables);  // the default number of chips
  CHECK(variables_of("7") == "7 8 true - 8,1,1 ");
  notebook_launcher([&] { ++forks; }, {.use_cpu = true});  // one process, without a fork
  CHECK(forks == 1);
  unsetenv("TPU_LIBRARY_PATH");
}

TEST_CASE("notebook_launcher: eight processes share the pages of one model") {
  constexpr std::int64_t kWidth = 4096;  // two layers of 67 MB
  auto model = used_model(kWidth);
  const long model_kb = 2 * (kWidth * kWidth + kWidth) * 4 / 1024;
  const TemporaryDirectory folder;
  notebook_launcher(
      [&] {
        const torch::NoGradGuard no_grad;
        const at::Tensor loss = model->forward(torch::ones({4, kWidth})).pow(2).mean();
        std::ofstream(folder.path() / std::getenv("RANK"))
            << own_memory() << " " << std::isfinite(loss.item<float>());
      },
      {.num_processes = 8, .use_cpu = true, .num_cpu_threads_per_process = 1});
  long all = 0;
  for (int rank = 0; rank < 8; ++rank) {
    long kb = 0;
    bool finite = false;
    std::ifstream(folder.path() / std::to_string(rank)) >> kb >> finite;
    CHECK(kb > 0);
    CHECK(kb < model_kb / 3);  // a separate copy would need all of model_kb
    CHECK(finite);
    all += kb;
  }
  MESSAGE("a model of ", model_kb / 1024, " MiB; eight processes have ", all / 1024,
          " MiB of separate memory in total");
}

}  // namespace process_notebook_launcher_test
