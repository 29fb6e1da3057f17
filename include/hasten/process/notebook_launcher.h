// File: hasten/process/notebook_launcher.h
// Runs a function in several processes from inside a running program: a plain main, a test, or the
// kernel of a notebook. Corresponds to Accelerate's notebook_launcher and debug_launcher.
//
//   auto model = Net();                                     // made once
//   notebook_launcher([&] { train(model, 3); }, {.num_processes = 8});
//   notebook_launcher(train, std::tuple(model, 3), {.num_processes = 8});
//   notebook_launcher(train, std::tuple(model, 3));         // on a TPU machine: one for each chip
//   debug_launcher([&] { check(model); });                  // two processes, on the CPU
//
// The processes are forks of this one, so they share its memory pages until one of them writes to a
// page: a model of 4 GB takes 4 GB in eight processes, not 32. Each process has torchrun's
// environment variables and may form a Group. A single process runs the function in place.
//
// Make the model before the call, and its optimizer inside the function. A model made inside exists
// once in each process, which is too much for a TPU machine with eight chips and little memory. Do
// not touch a device before the call, because an open device does not work in a fork.
//
// The call returns when all processes have returned. If one fails, by an exception, a signal or an
// exit code other than 0, the others get SIGTERM and a second later SIGKILL; after max_restarts
// more attempts the first failure of the last attempt is thrown as RankError. The processes write
// to the same output as this one, and die with it. Each has its own process group. When a process
// has ended, no process of its group remains. SIGINT, SIGTERM, SIGHUP and SIGQUIT to this process's
// group are forwarded to them, and prevent further attempts. If this process ignores SIGCHLD, it
// cannot know how a process was killed, and reports exit code 1.
//
// Throws RankError, and IoError "process.fork" if the system cannot create a process. Before the
// first fork it throws UsageError "process.fork-after-accelerator", "process.fork-after-group",
// "process.fork-after-cuda", "process.fork-after-tpu" for an object that does not survive a fork,
// "process.nested-launch" inside a launched process, "process.num-processes"; ConfigError
// "launch.tpu-processes" for more processes than the chips allow. Thread rule: one thread at a
// time; only the calling thread exists in the forks (OpenMP's threads are created again there), so
// the function must not depend on other threads, for example on a lock that one of them holds.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "hasten/base/detail/export.h"
#include "hasten/base/error.h"
#include "hasten/options/launch_options.h"

namespace hasten {

struct NotebookLauncherOptions {
  // If unset: one for each chip on a machine with TPUs (or with a plugin in TPU_LIBRARY_PATH), or 8
  // if the number of chips is unknown; one for each GPU that CUDA_VISIBLE_DEVICES leaves on a
  // machine with GPUs; 1 on other machines.
  std::optional<std::int64_t> num_processes = {};
  // Uses the CPU even if there are GPUs or TPUs.
  bool use_cpu = false;
  Precision mixed_precision = Precision::no;
  // With bf16 on TPUs, double numbers become float, not bfloat16.
  bool downcast_bf16 = false;
  // The number of further attempts after a failed one.
  std::int64_t max_restarts = 0;
  // The number of OpenMP threads in each process; 0 means cores / processes.
  std::int64_t num_cpu_threads_per_process = 0;
};

// Reports the first process that failed. The exit code is the process's own, 128 + n for signal n,
// or 1 for an exception without an exit code.
struct HASTEN_API RankError : Error {
  RankError(std::int64_t rank, ErrorText text, int exit_code);
  const std::int64_t rank;
};

// Runs function() in options.num_processes processes.
HASTEN_API void notebook_launcher(const std::function<void()>& function,
                                  const NotebookLauncherOptions& options = {});

// Runs function(arguments...) in options.num_processes processes.
template <class Function, class... Arguments>
void notebook_launcher(Function&& function, std::tuple<Arguments...> arguments,
                       const NotebookLauncherOptions& options = {}) {
  notebook_launcher([&] { std::apply(function, arguments); }, options);
}

// Runs function() in num_processes processes on the CPU.
HASTEN_API void debug_launcher(const std::function<void()>& function,
                               std::int64_t num_processes = 2);

}  // namespace hasten
