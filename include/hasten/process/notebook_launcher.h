// File: hasten/process/notebook_launcher.h
// A function in several processes, from inside a running program: a plain main, a test, or the
// kernel of a notebook. accelerate's notebook_launcher and debug_launcher.
//
//   auto model = Net();                                     // made once
//   notebook_launcher([&] { train(model); }, {.num_processes = 8});
//   notebook_launcher(train, std::tuple(model, 3), {.num_processes = 8});
//   notebook_launcher(train, std::tuple(model, 3));         // on a TPU machine: one for each chip
//   debug_launcher([] { check(); });                        // two processes, on the CPU
//
// The processes are forks of this one, so they share the pages of what it has made until one of
// them writes there: a model of 4 GB takes 4 GB, not 32. Each has torchrun's environment and may
// form a Group; a function of one process is called in place.
//
// Make the model before, and its optimizer inside. A model made inside is made once in each, which
// a TPU machine with eight chips and little memory does not survive; and no device may be touched
// before, as what is open there does not work in a fork.
//
// Returns when all have returned. When one fails, by an exception, a signal or exit(), the others
// get SIGTERM, a second later SIGKILL, and after max_restarts more attempts the first failure is
// thrown here as RankError. What the processes print goes where this one prints. They die with it.
// Each has a process group of its own, of which nothing is left when the process has ended. SIGINT,
// SIGTERM, SIGHUP and SIGQUIT to this process's group are passed on to them. Where this process
// ignores SIGCHLD, how a process was killed is not known, and told as exit code 1.
//
// Throws RankError; UsageError "process.fork-after-accelerator", "process.fork-after-group",
// "process.fork-after-cuda", "process.fork-after-tpu" for what does not survive a fork,
// "process.nested-launch" inside of a launched process, "process.num-processes"; ConfigError
// "launch.tpu-processes" for more than the chips are for. All of them before a fork is made. Thread
// rule: one thread at a time; of this process's threads only the calling one is in the forks
// (OpenMP's are set up anew there), so nothing that other threads hold may be needed by the
// function.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/config/launch_options.h"

namespace hasten {

struct NotebookLauncherOptions {
  // Unset: on a machine with TPUs (or a plugin in TPU_LIBRARY_PATH) one for each chip, 8 where
  // nobody knows how many there are; else 1.
  std::optional<std::int64_t> num_processes;
  bool use_cpu = false;  // also where there are GPUs or TPUs
  LaunchPrecision mixed_precision = LaunchPrecision::no;
  bool downcast_bf16 = false;  // bf16 on TPUs: double becomes float, not bf16
  std::int64_t max_restarts = 0;
  // Of OpenMP, in each; 0: cores / processes.
  std::int64_t num_cpu_threads_per_process = 0;
};

// The first process that failed. The exit code is its own, 128 + n for signal n, 1 for an
// exception that says none.
struct RankError : Error {
  RankError(std::int64_t rank, ErrorText text, int exit_code);
  const std::int64_t rank;
};

void notebook_launcher(const std::function<void()>& function,
                       const NotebookLauncherOptions& options = {});

template <class Function, class... Arguments>
void notebook_launcher(Function&& function, std::tuple<Arguments...> arguments,
                       const NotebookLauncherOptions& options = {}) {
  notebook_launcher([&] { std::apply(function, arguments); }, options);
}

void debug_launcher(const std::function<void()>& function, std::int64_t num_processes = 2);

}  // namespace hasten
