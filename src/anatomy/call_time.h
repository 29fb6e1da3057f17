// File: anatomy/call_time.h (internal)
// Predicts how long a GPU takes for one call of an operator, and the host to start it.
//
//   const CallTime time = time_of_call({"aten::gelu", shapes, flops, bytes}, speed);
//
// Products (product_time.h) and attention (attention_time.h) take the time of their arithmetic, or
// of moving their operands (streaming_time.h) if that is longer; all other operators take the time
// of moving. A kernel has a fixed cost on the GPU besides:
// its start, and the multiprocessors that wait for the last block.
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
// The host's cost of one operator in C++: autograd, dispatch, allocation and the launch. Small steps of
// BERT-base on three machines with an H100 took 20 to 26 us for each, 5 to 8 of them for the launch.
inline constexpr double kHostCost = 22e-6;
// A kernel of a CUDA graph starts so much sooner than one that the host starts (docs/gpu.md).
inline constexpr double kStartSavedByGraph = 1.5e-6;

struct OperatorCall {
  std::string_view name;
  const CallShapes& shapes;
  double flops = 0, bytes = 0;  // By its rule in op_rules.h.
  bool tf32 = false;            // Float products are computed in TF32.
};

// The format of a product whose factors have this type.
NumberFormat format_of(at::ScalarType type, bool tf32);

struct CallTime {
  double kernels = 0, host = 0;
};

HASTEN_INTERNAL_API CallTime time_of_call(const OperatorCall& call, const GpuSpeed& gpu);

// True if LibTorch rounds the factors of float products on GPUs that have TF32.
bool computes_in_tf32();

}  // namespace hasten::anatomy
