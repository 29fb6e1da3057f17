// File: hasten/process/group.h
// The processes that train together, and their collectives. A program that was not launched is a
// group of one process, in which the same calls work without communication.
//
//   const Worker worker = this_worker();
//   const auto process = ProcessState::of(worker);
//   const Group group = Group::form(worker);
//   at::Tensor all = group.gather(local);  // [world * rows, ...]
//
// A group of several ranks is a c10d process group over Gloo, with NCCL for GPU tensors and
// tpu_dist for TPU tensors. Its ranks meet through the store that hasten launch serves
// (HASTEN_STORE, over TLS with HASTEN_JOB_TOKEN). Without one, rank 0 serves a store at MASTER_ADDR
// and MASTER_PORT: hasten's if HASTEN_JOB_TOKEN is set, otherwise c10d's TCPStore, unless torchrun
// already serves one there. CPU tensors use connections that only ranks of the job can open: local
// sockets of the user on one machine, TLS with the token between machines (docs/launching.md).
//
// If a rank does not reach a collective, the job ends: after the timeout the group's watchdog
// prints which rank is late, its step, its last call and its stack, and ends every process with
// code 75 (docs/distributed.md, docs/errors.md "process.late-rank").
//
// Throws IoError "rendezvous.*", "process.rank-missing"; UsageError "process.calls-differ";
// c10::Error if another rank has ended or, without a watchdog, is too late. Thread rule: the
// collectives of one group are called by one thread at a time, in the same order on every rank.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/launch/worker.h"
#include "hasten/options/detail/names.h"

namespace c10d {
class ProcessGroup;
}

namespace hasten {

// The identity of this process. A value that does not depend on global state.
struct HASTEN_API ProcessState {
  std::int64_t process_index = 0;        // the rank
  std::int64_t num_processes = 1;        // the world size
  std::int64_t local_process_index = 0;  // the number among the processes of this machine
  at::Device device = at::kCPU;

  bool is_main_process() const { return process_index == 0; }
  bool is_local_main_process() const { return local_process_index == 0; }
  bool is_last_process() const { return process_index == num_processes - 1; }

  // Returns the identity that the launcher assigned. The device is the GPU of the local rank
  // (modulo the number of GPUs), or the CPU if there is no GPU or `cpu` is true.
  static ProcessState of(const Worker& worker, bool cpu = false);
};

enum class Reduction { none, sum, mean, max };

// The backend for the tensors of a GPU or a TPU. CPU tensors always use Gloo.
enum class ProcessGroupBackend { automatic, nccl, gloo, tpu_dist };

template <>
struct Names<ProcessGroupBackend> {
  static constexpr std::string_view text[] = {"automatic", "nccl", "gloo", "tpu_dist"};
};

struct GroupOptions {
  // The time limit for all ranks to meet, and for each collective.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  // Reports the rank that keeps the others waiting for longer than the timeout, and ends the job.
  // Without it, a collective that waits throws c10::Error, and a rank that hangs elsewhere keeps
  // hanging.
  bool watchdog = true;
  // Compares each collective over the ranks before it runs: its kind, types and shapes. If they
  // differ, every rank throws UsageError "process.calls-differ", which names the ranks that differ
  // from the majority, instead of hanging or computing a wrong result.
  bool debug = false;
  // automatic: for a GPU, NCCL if every rank can load it, otherwise Gloo through host memory. nccl:
  // throws UsageError "process.no-nccl" if a rank cannot load it. tpu_dist: torch_tpu's backend,
  // for a TPU that is already open; with every other value TPU tensors use Gloo (the Accelerator
  // chooses).
  ProcessGroupBackend backend = ProcessGroupBackend::automatic;
  // The device of this rank.
  at::Device device = at::kCPU;
  // Sums, gathers and broadcasts CPU tensors in memory that the ranks share, if all are on one
  // machine and can open it. Otherwise, and with false, they are sent through Gloo.
  bool shared_memory = true;
  // Encrypts data between ranks of different machines. If unset, HASTEN_ENCRYPT decides; without
  // that variable, data is encrypted if the job has a token (HASTEN_JOB_TOKEN, which hasten launch
  // gives its ranks). Ranks with a token always prove to each other that they know it. NCCL never
  // encrypts. Throws ConfigError "process.encryption" if encryption is asked for without a token or
  // with NCCL between machines, and if ranks differ.
  std::optional<bool> encrypt = {};
};

// A handle; copies refer to the same group.
class HASTEN_API Group {
 public:
  static Group single() { return Group(); }
  // Forms the group of all ranks of the job. Blocks until all ranks have joined.
  static Group form(const Worker& worker, const GroupOptions& options = {});

  std::int64_t size() const { return size_; }
  std::int64_t rank() const { return rank_; }

  // Concatenates the tensors of all ranks along the first dimension, in rank order; scalars become
  // [world]. The shape is the same on every rank.
  at::Tensor gather(const at::Tensor& tensor) const;
  // Reduces element by element over the ranks and multiplies by scale. Reduction::none only
  // multiplies. The shape is the same on every rank.
  at::Tensor reduce(const at::Tensor& tensor, Reduction reduction = Reduction::sum,
                    double scale = 1.0) const;
  // Returns the tensor of rank `from`. The shape and type are the same on every rank.
  at::Tensor broadcast(const at::Tensor& tensor, std::int64_t from = 0) const;
  // Pads tensors of different sizes along `dim` with pad_index to the largest size, at the end or
  // (pad_first) at the beginning. A tensor without that dimension is returned unchanged.
  at::Tensor pad_across_processes(const at::Tensor& tensor, std::int64_t dim = 0,
                                  double pad_index = 0, bool pad_first = false) const;
  // Returns the bytes of every rank, in rank order; their lengths may differ. Throws UsageError
  // "process.object-too-large" if the greatest length times the number of ranks exceeds 1 GiB.
  std::vector<std::string> gather_object(const std::string& bytes) const;
  // Returns the bytes of rank `from`. Throws UsageError "process.object-too-large" above 1 GiB.
  std::string broadcast_object(const std::string& bytes, std::int64_t from = 0) const;
  // Blocks until every rank has called it.
  void barrier() const;
  // A group of the same ranks with connections of its own, for a thread that communicates while the
  // training thread does. It has no watchdog. A collective.
  Group duplicate() const;

  // Records how many training steps this rank has made, for the watchdog's report. Prepared
  // optimizers call it.
  void set_step(std::int64_t done) const;

  // True if each collective is first compared over the ranks (GroupOptions::debug).
  bool compares_calls() const;

  // The c10d process group, for operations that Group lacks; null in a group of one.
  c10d::ProcessGroup* native() const;

 private:
  friend class CallScope;
  struct Shared;
  Group() = default;
  std::shared_ptr<Shared> shared_;
  std::int64_t rank_ = 0, size_ = 1;
};

// Describes the purpose of the collectives in a block. The watchdog's report shows it after the
// call: "the 38th collective, all_reduce of 262144 float (gradients, bucket 3)".
//
//   const CallScope scope(group, "evaluation of fold", 3);
class [[nodiscard]] HASTEN_API CallScope {
 public:
  // `purpose` must live as long as the program, as a literal does. An index below 0 is not shown.
  CallScope(const Group& group, const char* purpose, std::int64_t index = -1);
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;
  ~CallScope();

 private:
  std::shared_ptr<Group::Shared> shared_;
  const char* purpose_before_ = nullptr;
  std::int64_t index_before_ = -1;
};

// Lets the main process (of the job, or of each machine) run a block before the other processes,
// for example to make a download or a cache that the others then use. A collective.
//
//   {
//     const MainProcessFirst turn(process, group);
//     prepare_cache();
//   }
class [[nodiscard]] HASTEN_API MainProcessFirst {
 public:
  MainProcessFirst(const ProcessState& process, const Group& group, bool of_each_machine = false);
  MainProcessFirst(const MainProcessFirst&) = delete;
  MainProcessFirst& operator=(const MainProcessFirst&) = delete;
  ~MainProcessFirst() noexcept(false);

 private:
  Group group_;
  bool goes_first_;
  int uncaught_exceptions_;  // the number of exceptions in flight when the block began
};

}  // namespace hasten
