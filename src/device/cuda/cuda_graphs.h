// File: device/cuda/cuda_graphs.h (internal)
// CUDA graphs (at::cuda::CUDAGraph), from the module libhasten_cuda_graphs.so next to libhasten.
// The module is built if CUDA's headers are installed, and loaded if CUDA's libraries are. Thread
// rule: the same as in device/graph_recorder.h.
#pragma once

#include "device/graph_recorder.h"

namespace hasten {

// Returns a recorder for a GPU, or why there is none. The recorder of a simulated GPU is in
// anatomy/dry_graphs.h.
GraphSupport cuda_graphs(int index);

}  // namespace hasten
