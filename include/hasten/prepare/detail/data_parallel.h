// File: hasten/prepare/detail/data_parallel.h
// Options for summing the gradients of a prepared model over several processes. Names and defaults
// match Accelerate's DistributedDataParallelKwargs and PyTorch's DistributedDataParallel, except
// the default of gradient_as_bucket_view.
//
//   Accelerator accelerator({.ddp = {.find_unused_parameters = true}});
//
// c10d::Reducer does the work: gradients are collected in buckets in the order in which they become
// ready, and each bucket is summed over all processes while the backward pass continues. Two things
// differ from PyTorch: a gradient is divided once, by the weight of all micro-batches of all
// processes (Accelerator::backward), and weights that are already equal in all processes, as in
// forks of notebook_launcher, are not sent.
//
// Sparse gradients (from torch::nn::Embedding and EmbeddingBag with sparse(true), and from hasten's
// BERT after set_sparse_gradients(true)) are exchanged as the rows that were touched, with any
// comm_hook. A table is summed as a whole, and its gradient is dense in that step, if one process
// has a dense gradient, or if the longest list of rows times the number of processes exceeds half
// of the table.
//
// PowerSGD (Vogels, Karimireddy, Jaggi 2019, arXiv:1905.13727) approximates each gradient M of two
// or more dimensions by P Q^T, sends the two thin matrices P and Q instead of M, and adds the error
// to the gradient of the next step. `batched_power_sgd` treats a whole bucket as one square matrix.
//
// prepare() throws UsageError "prepare.power-sgd" for values that PowerSGD cannot use. Thread rule:
// values.
#pragma once

#include <cstdint>

#include "hasten/options/detail/names.h"

namespace hasten {

// The form in which gradients are exchanged. With fp16 and bf16 they are converted to that type and
// summed in it; with PowerSGD they keep their own type.
enum class CommunicationHook { no, fp16, bf16, power_sgd, batched_power_sgd };
// The type to which gradients are converted before the comm_hook, and in which it works.
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

// Options of the PowerSGD hooks. Names and defaults match PyTorch's PowerSGDState.
struct PowerSGDState {
  // The number of columns of P and Q.
  std::int64_t matrix_approximation_rank = 1;
  // The number of steps at the beginning that send whole gradients. At least 2 with
  // use_error_feedback or warm_start.
  std::int64_t start_powerSGD_iter = 1000;
  // A matrix is compressed only if P and Q together are more than this many times smaller.
  double min_compression_rate = 2;
  // Adds the error of a step to the gradient of the next step.
  bool use_error_feedback = true;
  // Starts from the Q of the last step instead of a random one.
  bool warm_start = true;
  // Added to the length of a column of P or Q before the column is divided by it.
  double orthogonalization_epsilon = 0;
  // The seed of the first Q, the same in all processes.
  std::uint32_t random_seed = 0;
};

struct DistributedDataParallelKwargs {
  // The size of a bucket in MiB. The first bucket has at most 1 MiB.
  std::int64_t bucket_cap_mb = 25;
  // Copies rank 0's buffers to all processes before each forward pass in training.
  bool broadcast_buffers = true;
  // Allows a backward pass to leave parameters out. Each pass then walks the autograd graph.
  bool find_unused_parameters = false;
  // Stores gradients in the buckets, which saves the memory and the time of one copy of them. Set
  // it to false, PyTorch's default, if the program keeps a gradient across a step or calls
  // detach_() on one.
  bool gradient_as_bucket_view = true;
  // Promises that every pass uses the same parameters in the same order.
  bool static_graph = false;
  CommunicationHook comm_hook = CommunicationHook::no;
  CommunicationWrapper comm_wrapper = CommunicationWrapper::no;
  // Used by power_sgd and batched_power_sgd.
  PowerSGDState comm_state_option = {};
};

}  // namespace hasten
