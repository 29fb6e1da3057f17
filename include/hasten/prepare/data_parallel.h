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
// Thread rule: values.
#pragma once

#include <cstdint>

#include "hasten/config/names.h"

namespace hasten {

// What gradients travel as. They are added up in that type.
enum class CommunicationHook { no, fp16, bf16 };

template <>
struct Names<CommunicationHook> {
  static constexpr std::string_view text[] = {"no", "fp16", "bf16"};
};

struct DistributedDataParallelKwargs {
  std::int64_t bucket_cap_mb = 25;  // MiB of a bucket; the first has at most 1
  bool broadcast_buffers = true;    // rank 0's, before each forward pass in training
  bool find_unused_parameters =
      false;  // a pass may leave parameters out; costs a walk of the graph
  bool gradient_as_bucket_view = false;  // gradients live in the buckets: less memory
  bool static_graph = false;             // every pass uses the same parameters in the same order
  CommunicationHook comm_hook = CommunicationHook::no;
};

}  // namespace hasten
