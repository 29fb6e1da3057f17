// File: anatomy/dry_graphs.h (internal)
// Records a CUDA graph on a simulated GPU. It takes the same memory as the graph of
// device/cuda/module/cuda_graph_module.cpp, and a replay does nothing. Graphs must not outlive the
// GPU. Thread rule: that of DryGpu.
#pragma once

#include <memory>

#include "device/graph_recorder.h"

namespace hasten::anatomy {

// Returns a recorder for the current DryGpu.
std::unique_ptr<GraphRecorder> dry_graph_recorder();

}  // namespace hasten::anatomy
