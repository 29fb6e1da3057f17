#include "exported/kernel_checks.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <vector>

#include "hasten/base/error.h"

namespace hasten::exported {
namespace kernels {
namespace {

using Shape = std::vector<std::int64_t>;

// The operands of a call, by their names in the schema.
class Operands {
 public:
  Operands(const c10::FunctionSchema& schema, const torch::jit::Stack& stack)
      : schema_(schema), stack_(stack) {}

  bool has(const char* name) const { return schema_.argumentIndexWithName(name).has_value(); }
  const c10::IValue& operator[](const char* name) const {
    return stack_.at(static_cast<std::size_t>(schema_.argumentIndexWithName(name).value()));
  }
  at::Tensor tensor(const char* name) const { return (*this)[name].toTensor(); }

  void require(bool holds, const char* what) const {
    if (holds) return;
    throw DataError("exported.graph",
                    {.what = "the operator " + schema_.name() + " of an exported program: " + what,
                     .got = "an operand with a wrong shape, type, device or value",
                     .expected = "an operand that fits the others"});
  }
  void require_shape(const at::Tensor& tensor, const Shape& shape, const at::Tensor& input,
                     const char* what) const {
    require(tensor.defined() && tensor.sizes() == at::IntArrayRef(shape) &&
                tensor.device() == input.device() && tensor.is_floating_point(),
            what);
  }

 private:
  const c10::FunctionSchema& schema_;
  const torch::jit::Stack& stack_;
};

// Returns the elements of an integer tensor on the CPU.
std::vector<std::int64_t> numbers_of(const at::Tensor& tensor) {
  const at::Tensor numbers = tensor.to(at::kLong).contiguous();
  // clang 19 gives the template const_data_ptr<T>() a different symbol than g++, which built
  // LibTorch. This overload is not a template.
  const auto* const data = static_cast<const std::int64_t*>(numbers.const_data_ptr());
  return {data, data + numbers.numel()};
}

// Checks that the number of rows does not grow from one time step to the next, and that the data
// contains all of these rows.
void check_batch_sizes(const Operands& operands) {
  const at::Tensor sizes = operands.tensor("batch_sizes"), data = operands.tensor("data");
  operands.require(sizes.device().is_cpu() && sizes.dim() == 1 && sizes.numel() > 0 &&
                       sizes.scalar_type() == at::kLong && data.dim() >= 1,
                   "the sizes of the batches");
  std::int64_t left = data.size(0), last = left;
  for (const std::int64_t size : numbers_of(sizes)) {
    operands.require(size >= 0 && size <= last && size <= left, "the sizes of the batches");
    left -= size;
    last = size;
  }
}

template <std::int64_t gates>
void check_layers(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  const Operands operands(schema, stack);
  const bool is_packed = operands.has("batch_sizes"), has_biases = operands["has_biases"].toBool();
  const at::Tensor input = operands.tensor(is_packed ? "data" : "input");
  const c10::IValue& hx = operands["hx"];
  const std::vector<at::Tensor> states =
      hx.isTensor() ? std::vector<at::Tensor>{hx.toTensor()} : hx.toTensorVector();
  const std::vector<at::Tensor> params = operands["params"].toTensorVector();
  const std::int64_t directions = operands["bidirectional"].toBool() ? 2 : 1;
  const std::int64_t layers = operands["num_layers"].toInt();
  operands.require(input.dim() == (is_packed ? 2 : 3), "the input");
  operands.require(states.size() == (gates == 4 ? 2u : 1u), "the states");
  operands.require(states[0].dim() == 3 && states.back().dim() == 3, "the states");
  // With a projection, the outputs of an LSTM are smaller than its cells.
  const std::int64_t output = states[0].size(2), hidden = states.back().size(2);
  const bool projects = output != hidden;
  const std::int64_t per_direction = 2 + (has_biases ? 2 : 0) + (projects ? 1 : 0);
  operands.require(layers >= 1 && layers <= 4096, "the number of layers");
  operands.require(params.size() == static_cast<std::size_t>(layers * directions * per_direction),
                   "the number of weights");
  const std::int64_t rows = is_packed                          ? states[0].size(1)
                            : operands["batch_first"].toBool() ? input.size(0)
                                                               : input.size(1);
  operands.require_shape(states[0], {layers * directions, rows, output}, input, "the states");
  operands.require_shape(states.back(), {layers * directions, rows, hidden}, input, "the states");
  std::size_t next = 0;
  for (std::int64_t i = 0; i < layers * directions; ++i) {
    const std::int64_t width = i < directions ? input.size(-1) : output * directions;
    operands.require_shape(params[next++], {gates * hidden, width}, input,
                           "the weights of the input");
    operands.require_shape(params[next++], {gates * hidden, output}, input,
                           "the weights of the state");
    for (int bias = 0; has_biases && bias < 2; ++bias)
      operands.require_shape(params[next++], {gates * hidden}, input, "a bias");
    if (projects) operands.require_shape(params[next++], {output, hidden}, input, "the projection");
  }
  if (is_packed) check_batch_sizes(operands);
}

// Checks one step of a recurrent layer.
template <std::int64_t gates>
void check_cell(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  const Operands operands(schema, stack);
  const at::Tensor input = operands.tensor("input");
  const c10::IValue& hx = operands["hx"];
  const std::vector<at::Tensor> states =
      hx.isTensor() ? std::vector<at::Tensor>{hx.toTensor()} : hx.toTensorVector();
  operands.require(input.dim() == 2, "the input");
  operands.require(states.size() == (gates == 4 ? 2u : 1u) && states[0].dim() == 2, "the states");
  const std::int64_t hidden = states[0].size(1);
  for (const at::Tensor& state : states)
    operands.require_shape(state, {input.size(0), hidden}, input, "the states");
  operands.require_shape(operands.tensor("w_ih"), {gates * hidden, input.size(1)}, input,
                         "the weights of the input");
  operands.require_shape(operands.tensor("w_hh"), {gates * hidden, hidden}, input,
                         "the weights of the state");
  for (const char* const bias : {"b_ih", "b_hh"})
    if (operands[bias].isTensor() && operands.tensor(bias).defined())
      operands.require_shape(operands.tensor(bias), {gates * hidden}, input, "a bias");
}

void check_pad_packed(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  check_batch_sizes(Operands(schema, stack));
}

void check_pack_padded(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  const Operands operands(schema, stack);
  const at::Tensor input = operands.tensor("input"), lengths = operands.tensor("lengths");
  const bool batch_first = operands["batch_first"].toBool();
  operands.require(input.dim() >= 2 && lengths.device().is_cpu() && lengths.dim() == 1 &&
                       lengths.scalar_type() == at::kLong &&
                       lengths.size(0) == input.size(batch_first ? 0 : 1),
                   "the lengths");
  for (const std::int64_t length : numbers_of(lengths))
    operands.require(length >= 0 && length <= input.size(batch_first ? 1 : 0), "the lengths");
}

// LibTorch has a dedicated kernel only for the first and the last dimension.
void check_weight_norm(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  const Operands operands(schema, stack);
  const at::Tensor v = operands.tensor("v"), g = operands.tensor("g");
  const std::int64_t dim = operands["dim"].toInt();
  if (dim != 0 && dim != v.dim() - 1) return;
  operands.require(v.dim() > 0 && g.numel() == v.size(dim) && g.device() == v.device() &&
                       g.scalar_type() == v.scalar_type(),
                   "the magnitudes");
}

void check_attention(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  const Operands operands(schema, stack);
  const at::Tensor query = operands.tensor("query"), key = operands.tensor("key"),
                   value = operands.tensor("value");
  operands.require(query.dim() >= 2 && key.dim() >= 2 && value.dim() >= 2, "the dimensions");
  operands.require(key.size(-2) == value.size(-2), "the lengths of keys and values");
  operands.require(query.size(-1) == key.size(-1), "the widths of queries and keys");
}

void check_ctc_loss(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  const Operands operands(schema, stack);
  const at::Tensor log_probs = operands.tensor("log_probs"), targets = operands.tensor("targets");
  operands.require(log_probs.dim() >= 2 && targets.dim() >= 1, "the dimensions");
  const std::int64_t classes = log_probs.size(-1);
  if (targets.device().is_cpu())
    for (const std::int64_t target : numbers_of(targets))
      operands.require(target >= 0 && target < classes, "the classes of the targets");
  for (const char* const name : {"input_lengths", "target_lengths"}) {
    const c10::IValue& given = operands[name];
    if (given.isTensor() && !given.toTensor().device().is_cpu()) continue;
    const std::vector<std::int64_t> lengths =
        given.isTensor() ? numbers_of(given.toTensor()) : given.toIntVector();
    for (const std::int64_t length : lengths) operands.require(length >= 0, "the lengths");
  }
}

}  // namespace
}  // namespace kernels

KernelCheck kernel_check(const std::string& base) {
  static const std::map<std::string, KernelCheck> checks = {
      {"lstm", kernels::check_layers<4>},
      {"gru", kernels::check_layers<3>},
      {"rnn_tanh", kernels::check_layers<1>},
      {"rnn_relu", kernels::check_layers<1>},
      {"lstm_cell", kernels::check_cell<4>},
      {"gru_cell", kernels::check_cell<3>},
      {"rnn_tanh_cell", kernels::check_cell<1>},
      {"rnn_relu_cell", kernels::check_cell<1>},
      {"_pad_packed_sequence", kernels::check_pad_packed},
      {"_pack_padded_sequence", kernels::check_pack_padded},
      {"_weight_norm", kernels::check_weight_norm},
      {"scaled_dot_product_attention", kernels::check_attention},
      {"_scaled_dot_product_attention_math", kernels::check_attention},
      {"ctc_loss", kernels::check_ctc_loss}};
  const auto found = checks.find(base);
  return found == checks.end() ? nullptr : found->second;
}

}  // namespace hasten::exported
