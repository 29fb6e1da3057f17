// File: anatomy/gpu_recurrent.h (internal)
// Recurrent layers on a simulated GPU. at::lstm, at::gru, at::rnn_tanh and at::rnn_relu call cuDNN,
// under autocast in half numbers, whatever type autocast has for other operators. If the program
// switches cuDNN off, they call a fused operator for each step.
//
// Source: LibTorch's native/RNN.cpp, native/cudnn/RNN.cpp and cudnn/AutocastRNN.cpp. What is not
// known without cuDNN stands in the functions at the end. Their numbers were measured on an H200
// with cuDNN 9, in float and in half numbers, with one LSTM of 2 layers, 2 directions and 5 hidden
// values.
//
// Thread rule: one at a time in a process; made and destroyed on the thread that trains.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "anatomy/gpu_kernels.h"
#include "anatomy/shape_rules.h"
#include "hasten/machine/gpus.h"

namespace hasten::anatomy {

// Stands in for the functions by which LibTorch calls cuDNN's recurrent layers, as long as it
// lives.
class SimulatedRecurrentLayers {
 public:
  SimulatedRecurrentLayers();
  SimulatedRecurrentLayers(const SimulatedRecurrentLayers&) = delete;
  SimulatedRecurrentLayers& operator=(const SimulatedRecurrentLayers&) = delete;
  ~SimulatedRecurrentLayers();

 private:
  std::array<void*, 4> previous_{};
};

// The rule of an operator of recurrent layers; null for others.
ShapeRule find_recurrent_rule(std::string_view name);
GpuWorkspace find_recurrent_workspace(std::string_view name);
// An operator of recurrent layers that calls others in its place; null for others.
GpuComposite find_recurrent_composite(std::string_view name);

struct RecurrentSizes {
  std::int64_t layers = 0, directions = 0, hidden = 0;
  std::int64_t tokens = 0;         // in all rows together
  std::int64_t element_bytes = 0;  // of a number
};

// The bytes that cuDNN reserves from the forward to the backward pass: for each token and hidden
// value of a layer, 5 values for an LSTM (four gates and the cell), 6 for a GRU and 1 for a plain
// layer, one more between layers, and kReserveBase bytes. The measured LSTM and a public figure for
// a GRU of an older cuDNN (PyTorch's issue 2895) fit. Layers of at most 192 may have another
// algorithm.
std::int64_t cudnn_reserve_bytes(std::int64_t mode, const RecurrentSizes& sizes);

// The bytes of the workspace of each kernel: that of cuBLAS, and for each token and hidden value of
// a layer each gate twice and one value. With 9 values for an LSTM it is 5 kB (half) and 9 kB
// (float) below the measured one; those for other layers are derived from it.
std::int64_t cudnn_workspace_bytes(std::int64_t mode, const RecurrentSizes& sizes, const Gpu& gpu);

// The bytes of the state of cuDNN's random numbers for dropout between layers, which a process
// keeps: 24 for each thread that the GPU can hold, 6,488,064 on an H200.
std::int64_t cudnn_dropout_state_bytes(const Gpu& gpu);

}  // namespace hasten::anatomy
