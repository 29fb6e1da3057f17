// File: hasten/process/group.h
// The processes that train together, and what they exchange. An unlaunched program is a group of
// one: every collective is then the identity, through the same calls.
//
//   const Worker worker = worker_of(config::whole_environment());  // whoever started it
//   const auto process = ProcessState::of(worker);
//   const Group group = Group::form(worker);
//   at::Tensor all = group.gather(local);              // [world * rows, ...]
//
// A group of several is c10d's, over Gloo, and over NCCL for the tensors of GPUs, tpu_dist for
// those of TPUs. Its ranks meet in the store that hasten launch serves (HASTEN_STORE, behind TLS
// with HASTEN_JOB_TOKEN); else in one that rank 0 serves at MASTER_ADDR and MASTER_PORT: hasten's
// where HASTEN_JOB_TOKEN is set, c10d's TCPStore where it is not, as it is torchrun's where that
// serves one. Tensors of the CPU go over connections that only the job's ranks have: on one machine
// local sockets of the user, between machines TLS with the token (docs/launching.md).
//
// A collective that some rank does not come to ends the job: after the limit the group's watchdog
// prints which rank is late, its step, its last call and its stack, and ends every process with
// code 75 (docs/distributed.md, docs/errors.md "process.late-rank").
//
// Throws IoError "rendezvous.*", "process.rank-missing", UsageError "process.calls-differ",
// c10::Error where another rank is gone or, without a watchdog, too late. Thread rule: collectives
// of one group are called by one thread at a time, in the same order on every rank.
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

#include "hasten/config/names.h"
#include "hasten/launch/worker.h"

namespace c10d {
class ProcessGroup;
}

namespace hasten {

// Who this process is. A value: nothing global stands behind it.
struct ProcessState {
  std::int64_t process_index = 0;  // rank
  std::int64_t num_processes = 1;  // world size
  std::int64_t local_process_index = 0;
  at::Device device = at::kCPU;

  bool is_main_process() const { return process_index == 0; }
  bool is_local_main_process() const { return local_process_index == 0; }
  bool is_last_process() const { return process_index == num_processes - 1; }

  // The GPU of a process on a machine is that of its local rank.
  static ProcessState of(const Worker& worker, bool cpu = false);
};

enum class Reduction { none, sum, mean, max };

// What carries the tensors of a GPU or a TPU; those of the CPU always go by Gloo.
enum class ProcessGroupBackend { automatic, nccl, gloo, tpu_dist };

template <>
struct Names<ProcessGroupBackend> {
  static constexpr std::string_view text[] = {"automatic", "nccl", "gloo", "tpu_dist"};
};

struct GroupOptions {
  // For the ranks to meet, and for each collective.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  // Reports the rank that keeps the others waiting for longer, and ends the job. Without it each
  // collective throws c10::Error where it waits, and a rank that hangs elsewhere stays.
  bool watchdog = true;
  // Each collective is first compared over the ranks: what it is, types and shapes. One that
  // differs throws UsageError "process.calls-differ" in every rank, with the ranks that are unlike
  // most, instead of a hang or a wrong result.
  bool debug = false;
  // automatic: NCCL where every rank can load it, else Gloo by way of the CPU. UsageError
  // "process.no-nccl" where it is asked for and cannot be loaded. tpu_dist: torch_tpu's, for the
  // tensors of a TPU that is open already; else these go by Gloo too (the Accelerator chooses).
  ProcessGroupBackend backend = ProcessGroupBackend::automatic;
  at::Device device = at::kCPU;  // this rank's
  // Sums, gathers and broadcasts of tensors on the CPU in memory that the ranks share, where all
  // are of one machine and can; false, or elsewhere: by Gloo's messages.
  bool shared_memory = true;
  // Whether what ranks of different machines say to each other is encrypted. Unset: HASTEN_ENCRYPT,
  // or else where the job has a token (HASTEN_JOB_TOKEN, which hasten launch gives its ranks). They
  // prove to each other that they know it in any case. NCCL's tensors are never encrypted. Throws
  // ConfigError "process.encryption" without a token, and where ranks differ.
  std::optional<bool> encrypt;
};

// A value; copies are the same group.
class Group {
 public:
  static Group single() { return Group(); }
  // Returns when all ranks have met.
  static Group form(const Worker& worker, const GroupOptions& options = {});

  std::int64_t size() const { return size_; }
  std::int64_t rank() const { return rank_; }

  // The tensors of all ranks, one after the other along the first dimension; a scalar becomes
  // [world]. The shape is the same on every rank.
  at::Tensor gather(const at::Tensor& tensor) const;
  // Element by element over the ranks, times scale.
  at::Tensor reduce(const at::Tensor& tensor, Reduction reduction = Reduction::sum,
                    double scale = 1.0) const;
  // Rank `from`'s tensor.
  at::Tensor broadcast(const at::Tensor& tensor, std::int64_t from = 0) const;
  // Tensors of unequal size along `dim` made equal by filling with pad_index, behind or (pad_first)
  // before.
  at::Tensor pad_across_processes(const at::Tensor& tensor, std::int64_t dim = 0,
                                  double pad_index = 0, bool pad_first = false) const;
  // Any bytes, of any length: every rank's, in their order; rank `from`'s. Throws UsageError
  // "process.object-too-large" above 1 GiB together.
  std::vector<std::string> gather_object(const std::string& bytes) const;
  std::string broadcast_object(const std::string& bytes, std::int64_t from = 0) const;
  // Until every rank is here.
  void barrier() const;
  // The same ranks once more, with connections of their own: for a thread that exchanges beside the
  // one that trains. A collective.
  Group duplicate() const;

  // Steps of training that this rank has done, for the watchdog's report; prepared optimizers say
  // it.
  void at_step(std::int64_t done) const;

  // Whether each collective is first compared over the ranks (GroupOptions::debug).
  bool compares_calls() const;

  // c10d's own, for what is not here; none in a group of one.
  c10d::ProcessGroup* native() const;

 private:
  friend class CallScope;
  struct Shared;
  Group() = default;
  std::shared_ptr<Shared> shared_;
  std::int64_t rank_ = 0, size_ = 1;
};

// What the collectives of a block are for, as the watchdog's report tells it beside the call: "the
// group's 38th collective, all_reduce of 262144 float (bucket 3 of the gradients)".
//
//   const CallScope scope(group, "evaluation of fold", 3);
class [[nodiscard]] CallScope {
 public:
  // `purpose` lives as long as the program. An index below 0 is not told.
  CallScope(const Group& group, const char* purpose, std::int64_t index = -1);
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;
  ~CallScope();

 private:
  std::shared_ptr<Group::Shared> shared_;
  const char* purpose_before_ = nullptr;
  std::int64_t index_before_ = -1;
};

// The main process (of the job, or of each machine) goes through a block before the others:
// downloads and caches are then made once and found by the rest.
//
//   { const MainProcessFirst turn(process, group); prepare_cache(); }
class [[nodiscard]] MainProcessFirst {
 public:
  MainProcessFirst(const ProcessState& process, const Group& group, bool of_each_machine = false);
  MainProcessFirst(const MainProcessFirst&) = delete;
  MainProcessFirst& operator=(const MainProcessFirst&) = delete;
  ~MainProcessFirst() noexcept(false);

 private:
  Group group_;
  bool goes_first_;
  int exceptions_;  // under way when the block began
};

}  // namespace hasten
