// File: anatomy/gpu_recurrent.h (internal)
// Recurrent layers on a simulated GPU. at::lstm, at::gru, at::rnn_tanh and at::rnn_relu call cuDNN,
// under autocast in half numbers, whatever type autocast has for other operators. If the program
// switches cuDNN off, they call a fused operator for each step.
//
// Source: LibTorch's native/RNN.cpp, native/cudnn/RNN.cpp and cudnn/AutocastRNN.cpp. What is not
// known without cuDNN stands in the two functions at the end: the space that cuDNN reserves from the
// forward to the backward pass, and the state of its random numbers. Its workspaces are not counted.
//
// Thread rule: one at a time in a process; made and destroyed on the thread that trains.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "anatomy/shape_rules.h"

namespace hasten::anatomy {

// Stands in for the functions by which LibTorch calls cuDNN's recurrent layers, as long as it lives.
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

struct RecurrentSizes {
  std::int64_t layers = 0, directions = 0, hidden = 0;
  std::int64_t tokens = 0;         // in all rows together
  std::int64_t element_bytes = 0;  // of a number
};

// The bytes that cuDNN reserves, derived and not measured. An issue of PyTorch (2895, of 2017) has
// 736,000,000 for an LSTM and 864,000,000 for a GRU; the numbers of their parameters say that they
// have 4 layers of 320. With 25,000 tokens, which is assumed, that is 23 and 27 times 320 floats for
// each token: 5 values for each layer of an LSTM (four gates and the cell), 6 for one of a GRU, and
// one more between layers. Layers of at most 192 have an algorithm of their own, which may differ.
std::int64_t cudnn_reserve_bytes(std::int64_t mode, const RecurrentSizes& sizes);

// The bytes of the state of cuDNN's random numbers for dropout between layers, which a process keeps.
// LibTorch's source says "slightly over 2MB"; the exact number depends on the GPU.
inline constexpr std::int64_t kCudnnDropoutState = (std::int64_t{2} << 20) + 512;

}  // namespace hasten::anatomy
