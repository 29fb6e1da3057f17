#include "anatomy/gpu_recurrent.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/native/RNN.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "anatomy/cuda_stub_slot.h"
#include "anatomy/dry_gpu.h"
#include "anatomy/shape_rule_helpers.h"

namespace hasten::anatomy {
namespace {

using at::TensorList;

// The values of cudnnRNNMode_t.
constexpr std::int64_t kRelu = 0, kTanh = 1, kLstm = 2, kGru = 3;

constexpr std::int64_t kReserveBase = 1536;

std::int64_t gates_of(std::int64_t mode) { return mode == kLstm ? 4 : mode == kGru ? 3 : 1; }

std::int64_t total_numel(TensorList tensors) {
  std::int64_t count = 0;
  for (const Tensor& each : tensors) count += each.numel();
  return count;
}

// Returns the weights' common storage as one tensor, or an undefined tensor if they have several
// storages.
Tensor common_buffer(TensorList weights) {
  for (const Tensor& weight : weights) {
    if (!weight.is_alias_of(weights[0])) return Tensor();
  }
  const auto bytes = static_cast<std::int64_t>(weights[0].storage().nbytes());
  Tensor buffer = at::empty({0}, weights[0].options());
  buffer.set_(weights[0].storage(), 0,
              {bytes / static_cast<std::int64_t>(weights[0].element_size())}, {1});
  return buffer;
}

struct FlatWeights {
  Tensor buffer;
  std::vector<Tensor> parts;
};

// Copies all weights into one buffer of half numbers, as autocast does. Autograd records the copies
// in its graph.
FlatWeights flat_half_weights(TensorList weights) {
  FlatWeights out{
      .buffer = at::zeros({total_numel(weights)}, weights[0].options().dtype(at::kHalf)),
      .parts = {}};
  std::int64_t begin = 0;
  for (const Tensor& weight : weights) {
    Tensor part = at::empty({0}, out.buffer.options());
    part.set_(out.buffer.storage(), begin, {weight.numel(), 1}, {1, 1});
    part.copy_(weight.reshape({weight.numel(), 1}));
    begin += weight.numel();
    out.parts.push_back(part);
  }
  return out;
}

struct Outputs {
  Tensor output, hidden, cell;
};

// The options of a layer that do not depend on its kind.
struct LayerOptions {
  bool has_biases;
  std::int64_t layers;
  double dropout;
  bool train, bidirectional, batch_first;
};

Outputs call_cudnn(std::int64_t mode, Tensor x, Tensor hidden, Tensor cell, TensorList weights,
                   const LayerOptions& options) {
  const bool projects = cell.defined() && cell.size(2) != hidden.size(2);
  const std::int64_t per_layer = (options.has_biases ? 4 : 2) + (projects ? 1 : 0);
  const std::int64_t size = projects ? cell.size(2) : hidden.size(2);
  FlatWeights flat;
  const bool casts = at::autocast::is_autocast_enabled(weights[0].device().type()) &&
                     weights[0].scalar_type() == at::kFloat;
  if (casts) {
    flat = flat_half_weights(weights);
    x = x.to(at::kHalf);
    hidden = hidden.to(at::kHalf);
    if (cell.defined()) cell = cell.to(at::kHalf);
  } else {
    flat.buffer = common_buffer(weights);
  }
  const Tensor dropout_state =
      options.train && options.dropout > 0 ? DryGpu::active()->cudnn_dropout_state() : Tensor();
  const auto optional = [](const Tensor& tensor) {
    return tensor.defined() ? std::optional<Tensor>(tensor) : std::nullopt;
  };
  const auto results = at::_cudnn_rnn(
      x, casts ? TensorList(flat.parts) : weights, per_layer, optional(flat.buffer), hidden,
      optional(cell), mode, size, projects ? hidden.size(2) : 0, options.layers,
      options.batch_first, options.dropout, options.train, options.bidirectional,
      /*batch_sizes=*/{}, optional(dropout_state));
  return {std::get<0>(results), std::get<1>(results), std::get<2>(results)};
}

void run_lstm(Tensor& output, Tensor& hidden, Tensor& cell, const Tensor& x, TensorList states,
              TensorList weights, bool has_biases, std::int64_t layers, double dropout, bool train,
              bool bidirectional, bool batch_first) {
  Outputs out = call_cudnn(kLstm, x, states[0], states[1], weights,
                           {has_biases, layers, dropout, train, bidirectional, batch_first});
  output = std::move(out.output);
  hidden = std::move(out.hidden);
  cell = std::move(out.cell);
}

template <std::int64_t Mode>
void run_rnn(Tensor& output, Tensor& hidden, const Tensor& x, const Tensor& state,
             TensorList weights, bool has_biases, std::int64_t layers, double dropout, bool train,
             bool bidirectional, bool batch_first) {
  Outputs out = call_cudnn(Mode, x, state, Tensor(), weights,
                           {has_biases, layers, dropout, train, bidirectional, batch_first});
  output = std::move(out.output);
  hidden = std::move(out.hidden);
}

std::vector<std::int64_t> integers(const c10::IValue& value) {
  return value.isNone() ? std::vector<std::int64_t>() : value.toIntVector();
}

RecurrentSizes recurrent_sizes(const Tensor& x, std::int64_t hidden, std::int64_t layers,
                               bool bidirectional) {
  return {.layers = layers,
          .directions = bidirectional ? 2 : 1,
          .hidden = hidden,
          .tokens = x.numel() / std::max<std::int64_t>(1, x.size(-1)),
          .element_bytes = static_cast<std::int64_t>(x.element_size())};
}

// cuDNN takes the rows of one step after the other, so it copies an input in a different layout.
WorkspaceStages cudnn_rnn_workspace(Arguments a, const Gpu& gpu) {
  const Tensor x = tensor(a, 0);
  const bool copies = a[10].toBool() && integers(a[14]).empty();
  const RecurrentSizes sizes = recurrent_sizes(x, a[7].toInt(), a[9].toInt(), a[13].toBool());
  return {{copies ? static_cast<std::int64_t>(x.nbytes()) : 0,
           cudnn_workspace_bytes(a[6].toInt(), sizes, gpu)}};
}
WorkspaceStages cudnn_rnn_backward_workspace(Arguments a, const Gpu& gpu) {
  const Tensor x = tensor(a, 0), result = tensor(a, 6);
  const bool copies = a[14].toBool() && integers(a[18]).empty();
  const auto copied = [&](const Tensor& y) {
    return copies ? static_cast<std::int64_t>(y.nbytes()) : 0;
  };
  const RecurrentSizes sizes = recurrent_sizes(x, a[11].toInt(), a[13].toInt(), a[17].toBool());
  const std::int64_t own = cudnn_workspace_bytes(a[10].toInt(), sizes, gpu);
  return {{copied(x), copied(result), own}, {copied(x), own}};
}

// Moves the weights into one buffer and makes them views of it.
void flatten_weights(torch::jit::Stack* stack) {
  constexpr std::size_t kArguments = 9;
  const std::vector<Tensor> weights = torch::jit::peek(*stack, 0, kArguments).toTensorVector();
  torch::jit::drop(*stack, kArguments);
  const Tensor buffer = at::zeros({total_numel(weights)}, weights[0].options());
  std::int64_t begin = 0;
  for (const Tensor& weight : weights) {
    const Tensor part = buffer.narrow(0, begin, weight.numel()).view(weight.sizes());
    part.copy_(weight);
    weight.set_(buffer.storage(), begin, part.sizes(), part.strides());
    begin += weight.numel();
  }
  stack->push_back(buffer);
}

// x is [tokens, features] if it has batch sizes, else [length, rows, features], or
// [rows, length, features] for batch_first.
Results cudnn_rnn(Arguments a) {
  const Tensor x = tensor(a, 0), hidden = tensor(a, 4), cell = tensor(a, 5);
  const bool batch_first = a[10].toBool(), packed = !integers(a[14]).empty();
  const std::int64_t directions = a[13].toBool() ? 2 : 1,
                     size = a[8].toInt() != 0 ? a[8].toInt() : a[7].toInt();
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = size * directions;
  const bool swaps = batch_first && !packed;
  if (swaps) std::swap(sizes[0], sizes[1]);
  const Tensor made = at::empty(sizes, x.options());
  const RecurrentSizes all = recurrent_sizes(x, a[7].toInt(), a[9].toInt(), a[13].toBool());
  const std::int64_t reserved = a[12].toBool() ? cudnn_reserve_bytes(a[6].toInt(), all) : 0;
  const std::int64_t weights = total_numel(a[1].toTensorVector());
  // cuDNN returns the caller's weight buffer if there is one. Here an empty tensor replaces it.
  return {
      swaps ? made.transpose(0, 1) : made, at::empty(hidden.sizes(), hidden.options()),
      cell.defined() ? at::empty(cell.sizes(), cell.options()) : at::empty({0}, hidden.options()),
      at::empty({reserved}, x.options().dtype(at::kByte)),
      at::empty({tensor(a, 3).defined() ? 0 : weights}, x.options())};
}

// In cuDNN the gradients of the weights are views of one buffer. Here each gradient has its own
// memory.
Results cudnn_rnn_backward(Arguments a) {
  const Tensor x = tensor(a, 0), hidden = tensor(a, 4), cell = tensor(a, 5);
  const bool swaps = a[14].toBool() && integers(a[18]).empty();
  c10::List<Tensor> weights;
  for (const Tensor& weight : a[1].toTensorVector())
    weights.push_back(a[21].toBoolList()[3] ? at::empty(weight.sizes(), weight.options())
                                            : Tensor());
  const Tensor of_x = swaps ? at::empty_like(x.transpose(0, 1), at::MemoryFormat::Contiguous)
                            : at::empty(x.sizes(), x.options());
  return {swaps ? of_x.transpose(0, 1) : of_x, at::empty(hidden.sizes(), hidden.options()),
          cell.defined() ? at::empty(cell.sizes(), cell.options()) : Tensor(), weights};
}

Tensor like(const Tensor& x) { return at::empty(x.sizes(), x.options()); }

// The gates are [rows, 4 * hidden] for an LSTM and [rows, 3 * hidden] for a GRU.
Results lstm_cell(Arguments a) {
  return {like(tensor(a, 2)), like(tensor(a, 2)), like(tensor(a, 0))};
}
Results lstm_cell_backward(Arguments a) {
  const Tensor gates = tensor(a, 4);
  return {like(gates), like(tensor(a, 2)),
          a[5].toBool() ? at::empty({gates.size(1)}, gates.options()) : Tensor()};
}
Results gru_cell(Arguments a) {
  const Tensor state = tensor(a, 2);
  return {like(state), at::empty({state.size(0), 5 * state.size(1)}, state.options())};
}
Results gru_cell_backward(Arguments a) {
  const Tensor of_state = tensor(a, 0);
  const auto gates = [&] {
    return at::empty({of_state.size(0), 3 * of_state.size(1)}, of_state.options());
  };
  const auto bias = [&] {
    return a[2].toBool() ? at::empty({3 * of_state.size(1)}, of_state.options()) : Tensor();
  };
  return {gates(), gates(), like(of_state), bias(), bias()};
}

}  // namespace

SimulatedRecurrentLayers::SimulatedRecurrentLayers()
    : previous_{cuda_slot(at::native::lstm_cudnn_stub), cuda_slot(at::native::gru_cudnn_stub),
                cuda_slot(at::native::rnn_tanh_cudnn_stub),
                cuda_slot(at::native::rnn_relu_cudnn_stub)} {
  at::native::lstm_cudnn_stub.set_cuda_dispatch_ptr(&run_lstm);
  at::native::gru_cudnn_stub.set_cuda_dispatch_ptr(&run_rnn<kGru>);
  at::native::rnn_tanh_cudnn_stub.set_cuda_dispatch_ptr(&run_rnn<kTanh>);
  at::native::rnn_relu_cudnn_stub.set_cuda_dispatch_ptr(&run_rnn<kRelu>);
}

SimulatedRecurrentLayers::~SimulatedRecurrentLayers() {
  cuda_slot(at::native::lstm_cudnn_stub) = previous_[0];
  cuda_slot(at::native::gru_cudnn_stub) = previous_[1];
  cuda_slot(at::native::rnn_tanh_cudnn_stub) = previous_[2];
  cuda_slot(at::native::rnn_relu_cudnn_stub) = previous_[3];
}

ShapeRule find_recurrent_rule(std::string_view name) {
  static const std::map<std::string, ShapeRule, std::less<>> all = {
      {"aten::_cudnn_rnn", cudnn_rnn},
      {"aten::_cudnn_rnn_backward", cudnn_rnn_backward},
      {"aten::_thnn_fused_lstm_cell", lstm_cell},
      {"aten::_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward},
      {"aten::_thnn_fused_gru_cell", gru_cell},
      {"aten::_thnn_fused_gru_cell_backward", gru_cell_backward},
  };
  const auto found = all.find(name);
  return found == all.end() ? nullptr : found->second;
}

GpuWorkspace find_recurrent_workspace(std::string_view name) {
  if (name == "aten::_cudnn_rnn") return cudnn_rnn_workspace;
  return name == "aten::_cudnn_rnn_backward" ? cudnn_rnn_backward_workspace : nullptr;
}

GpuComposite find_recurrent_composite(std::string_view name) {
  return name == "aten::_cudnn_rnn_flatten_weight" ? flatten_weights : nullptr;
}

std::int64_t cudnn_workspace_bytes(std::int64_t mode, const RecurrentSizes& sizes, const Gpu& gpu) {
  const std::int64_t values =
      (2 * gates_of(mode) + 1) * sizes.layers * sizes.directions * sizes.hidden * sizes.tokens;
  return cublas_workspace(gpu) + kReserveBase + values * sizes.element_bytes;
}

std::int64_t cudnn_dropout_state_bytes(const Gpu& gpu) {
  constexpr std::int64_t kBytesPerThread = 24;
  return kBytesPerThread * gpu.multiprocessors * gpu.threads_per_multiprocessor;
}

std::int64_t cudnn_reserve_bytes(std::int64_t mode, const RecurrentSizes& sizes) {
  const std::int64_t per_layer = mode == kLstm ? 5 : mode == kGru ? 6 : 1;
  const std::int64_t values = per_layer * sizes.layers + sizes.layers - 1;
  return values * sizes.directions * sizes.hidden * sizes.tokens * sizes.element_bytes +
         kReserveBase;
}

}  // namespace hasten::anatomy
