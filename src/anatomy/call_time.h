// File: anatomy/call_time.h (internal)
// Predicts how long a GPU takes for one call of an operator, and how long the host takes to start
// it.
//
//   const CallTime time = time_of_call({"aten::gelu", shapes, flops, bytes}, speed);
//
// Products (product_time.h) and attention (attention_time.h) take the time of their arithmetic, or
// the time to move their operands (streaming_time.h) if that is longer. All other operators take
// the time to move their operands. In addition, a kernel has a fixed cost on the GPU: its start,
// and the multiprocessors that wait for the last block.
//
// Units: seconds. Sources: docs/gpu.md. Thread rule: pure functions, except computes_in_tf32, which
// reads LibTorch's setting.
#pragma once

#include <c10/core/ScalarType.h>

#include <string_view>

#include "anatomy/gpu_speed.h"
#include "anatomy/op_rules.h"
#include "base/internal_api.h"

namespace hasten::anatomy {

// The fixed cost of a kernel on the GPU.
inline constexpr double kKernelStart = 3e-6;
// The cost of one C++ operator on the host: autograd, dispatch, allocation and the launch. In small
// steps of BERT-base on three machines with an H100, each operator took 20 to 26 us, including 5 to
// 8 us for the launch.
inline constexpr double kHostCost = 22e-6;
// A kernel of a CUDA graph starts this much sooner than a kernel that the host starts
// (docs/gpu.md).
inline constexpr double kStartSavedByGraph = 1.5e-6;

struct OperatorCall {
  std::string_view name;
  const CallShapes& shapes;
  double flops = 0, bytes = 0;  // According to its rule in op_rules.h.
  bool tf32 = false;            // Float products are computed in TF32.
};

// Returns the format of a product with factors of this type.
NumberFormat format_of(at::ScalarType type, bool tf32);

struct CallTime {
  double kernels = 0, host = 0;
};

HASTEN_INTERNAL_API CallTime time_of_call(const OperatorCall& call, const GpuSpeed& gpu);

// True if LibTorch rounds the factors of float products on GPUs that have TF32.
bool computes_in_tf32();

}  // namespace hasten::anatomy
