// File: hasten/prepare/data_parallel.h
// How the gradients of a prepared model become those of all processes together. Names and defaults
// are those of accelerate's DistributedDataParallelKwargs and torch's DistributedDataParallel.
//
//   Accelerator accelerator({.ddp = {.find_unused_parameters = true}});
//
// The work is c10d::Reducer's: gradients go into buckets in the order they become ready, and each
// bucket is summed over all processes while backward goes on. What differs from torch: a gradient
// is divided once, by the weight of all micro-batches of all processes (Accelerator::backward), and
// processes that hold the same weights already (forks of notebook_launcher) are sent none.
//
// Sparse gradients (torch::nn::Embedding and EmbeddingBag with sparse(true), hasten's BERT after
// set_sparse_gradients(true)) travel as the rows that were touched, with any comm_hook; where those
// of all processes would be more than half of the table, and where a process has a dense one, the
// table is summed as a whole, and its gradient is dense in that step.
//
// PowerSGD (Vogels, Karimireddy, Jaggi 2019, arXiv:1905.13727) sends two thin matrices P and Q
// instead of each gradient M of two or more dimensions, M being about P Q^T, and adds what was lost
// to the next step's. `batched_power_sgd` takes a whole bucket as one square matrix.
//
// Throws UsageError "prepare.power-sgd". Thread rule: values.
#pragma once

#include <cstdint>

#include "hasten/config/names.h"

namespace hasten {

// What gradients travel as. They are added up in that type; with PowerSGD in theirs.
enum class CommunicationHook { no, fp16, bf16, power_sgd, batched_power_sgd };
// What a comm_hook works in.
enum class CommunicationWrapper { no, fp16, bf16 };

template <>
struct Names<CommunicationHook> {
  static constexpr std::string_view text[] = {"no", "fp16", "bf16", "power_sgd",
                                              "batched_power_sgd"};
};
template <>
struct Names<CommunicationWrapper> {
  static constexpr std::string_view text[] = {"no", "fp16", "bf16"};
};

// Names and defaults as torch's PowerSGDState.
struct PowerSGDState {
  std::int64_t matrix_approximation_rank = 1;  // columns of P and Q
  std::int64_t start_powerSGD_iter = 1000;     // steps before, which send all
  // A matrix is compressed where that makes it more than so many times smaller.
  double min_compression_rate = 2;
  bool use_error_feedback = true;  // what was lost is added to the next step's
  bool warm_start = true;          // Q is the last step's, not random
  double orthogonalization_epsilon = 0;
  std::uint32_t random_seed = 0;  // of the first Q; the same everywhere
};

struct DistributedDataParallelKwargs {
  std::int64_t bucket_cap_mb = 25;  // MiB of a bucket; the first has at most 1
  bool broadcast_buffers = true;    // rank 0's, before each forward pass in training
  bool find_unused_parameters =
      false;  // a pass may leave parameters out; costs a walk of the graph
  // Gradients live in the buckets: one copy of them less in memory, and none in time. False, as
  // torch has it, for a program that keeps a gradient over a step or calls detach_() on it.
  bool gradient_as_bucket_view = true;
  bool static_graph = false;  // every pass uses the same parameters in the same order
  CommunicationHook comm_hook = CommunicationHook::no;
  CommunicationWrapper comm_wrapper = CommunicationWrapper::no;
  PowerSGDState comm_state_option;  // of the two PowerSGD hooks
};

}  // namespace hasten
