// File: anatomy/gpu_recurrent.h (internal)
// Recurrent layers on a simulated GPU. at::lstm, at::gru, at::rnn_tanh and at::rnn_relu call cuDNN.
// Under autocast they use half numbers, even if autocast has a different type for other operators.
// If the program disables cuDNN, they call a fused operator for each step.
//
// Source: LibTorch's native/RNN.cpp, native/cudnn/RNN.cpp and cudnn/AutocastRNN.cpp. The functions
// at the end contain the facts that are not known without cuDNN. Their numbers were measured on an
// H200 with cuDNN 9, in float and in half numbers, with one LSTM of 2 layers, 2 directions and 5
// hidden values.
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

// While an object exists, it replaces the functions through which LibTorch calls cuDNN's recurrent
// layers.
class SimulatedRecurrentLayers {
 public:
  SimulatedRecurrentLayers();
  SimulatedRecurrentLayers(const SimulatedRecurrentLayers&) = delete;
  SimulatedRecurrentLayers& operator=(const SimulatedRecurrentLayers&) = delete;
  ~SimulatedRecurrentLayers();

 private:
  std::array<void*, 4> previous_{};
};

// Returns the rule of an operator of recurrent layers, or null for other operators.
ShapeRule find_recurrent_rule(std::string_view name);
GpuWorkspace find_recurrent_workspace(std::string_view name);
// Returns the function of a recurrent operator that only calls other operators, or null for any
// other operator.
GpuComposite find_recurrent_composite(std::string_view name);

struct RecurrentSizes {
  std::int64_t layers = 0, directions = 0, hidden = 0;
  std::int64_t tokens = 0;         // in all rows together
  std::int64_t element_bytes = 0;  // of one number
};

// Returns the bytes that cuDNN reserves from the forward to the backward pass. For each token and
// hidden value of a layer it reserves 5 values for an LSTM (four gates and the cell), 6 for a GRU
// and 1 for a plain layer. It adds one more value between layers, and kReserveBase bytes. This
// agrees with the measured LSTM and with a public figure for a GRU of an older cuDNN (PyTorch's
// issue 2895). Layers of at most 192 hidden values may use a different algorithm.
std::int64_t cudnn_reserve_bytes(std::int64_t mode, const RecurrentSizes& sizes);

// Returns the bytes of the workspace of each kernel: the workspace of cuBLAS, and for each token
// and hidden value of a layer two values per gate and one more. With 9 values for an LSTM the
// result is 5 kB (half) and 9 kB (float) below the measured workspace. The figures for other layers
// are derived from it.
std::int64_t cudnn_workspace_bytes(std::int64_t mode, const RecurrentSizes& sizes, const Gpu& gpu);

// Returns the bytes of the state of cuDNN's random numbers for dropout between layers, which a
// process keeps: 24 for each thread that the GPU can hold, which is 6,488,064 on an H200.
std::int64_t cudnn_dropout_state_bytes(const Gpu& gpu);

}  // namespace hasten::anatomy
