// File: hasten/process/group.h
// The processes that train together, and what they exchange. An unlaunched program is a group of
// one: every collective is then the identity, through the same calls.
//
//   ProcessState process;                              // one process, on the CPU or the first GPU
//   Group group = Group::single();
//   at::Tensor all = group.gather(local);              // [world * rows, ...]
//
// Thread rule: collectives of one group are called by one thread at a time, in the same order on
// every rank.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>

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

  // Throws UsageError "process.one-of-many" where a launcher has started several: each would train
  // by itself. One process on the first GPU, if LibTorch has its CUDA library loaded and a GPU is
  // there, else on the CPU.
  static ProcessState single(bool cpu = false);
};

enum class Reduction { none, sum, mean, max };

class Group {
 public:
  static Group single() { return Group(); }

  std::int64_t size() const { return 1; }
  std::int64_t rank() const { return 0; }

  // The tensors of all ranks, one after the other along the first dimension; a scalar becomes
  // [world].
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
  // Until every rank is here.
  void barrier() const {}

 private:
  Group() = default;
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
  ~MainProcessFirst();

 private:
  Group group_;
  bool goes_first_;
};

}  // namespace hasten
