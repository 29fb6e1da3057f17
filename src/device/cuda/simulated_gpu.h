// File: device/cuda/simulated_gpu.h (internal)
// Replaces NVML's answers while a dry run simulates a GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "device/graph_recorder.h"

namespace hasten {

struct SimulatedGpu {
  std::function<std::int64_t()> used;  // returns the bytes in use; if empty, NVML is asked
  std::int64_t total = 0;
  int compute_capability = 0;
  std::function<std::unique_ptr<GraphRecorder>()> graph_recorder;
};

// Thread rule: while no other thread asks for a GPU's figures.
void set_simulated_gpu(SimulatedGpu gpu);
// Returns whether a GPU is simulated. Any thread may ask.
bool is_gpu_simulated();
// Returns the recorder of graphs of the simulated GPU, or null if it has none.
std::unique_ptr<GraphRecorder> simulated_graph_recorder();

}  // namespace hasten
