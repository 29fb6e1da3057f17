#include "exported/recurrent_checks.h"

#include <ATen/core/Tensor.h>

#include <map>
#include <vector>

#include "hasten/base/error.h"

namespace hasten::exported {
namespace {

using Shape = std::vector<std::int64_t>;

void require_shape(const at::Tensor& tensor, const Shape& shape, const at::Tensor& input,
                   const char* what) {
  if (tensor.defined() && tensor.sizes() == at::IntArrayRef(shape) &&
      tensor.device() == input.device() && tensor.is_floating_point())
    return;
  throw DataError("exported.graph",
                  {.what = std::string("a recurrent layer of an exported program: ") + what,
                   .got = "another shape, type or device",
                   .expected = "what the layer's sizes need"});
}

// The operands by the names of the schema.
class Operands {
 public:
  Operands(const c10::FunctionSchema& schema, const torch::jit::Stack& stack)
      : schema_(schema), stack_(stack) {}

  bool has(const char* name) const { return schema_.argumentIndexWithName(name).has_value(); }
  const c10::IValue& operator[](const char* name) const {
    return stack_.at(static_cast<std::size_t>(schema_.argumentIndexWithName(name).value()));
  }

 private:
  const c10::FunctionSchema& schema_;
  const torch::jit::Stack& stack_;
};

}  // namespace

std::optional<std::int64_t> recurrent_gates(const std::string& base) {
  static const std::map<std::string, std::int64_t> gates = {
      {"lstm", 4}, {"gru", 3}, {"rnn_tanh", 1}, {"rnn_relu", 1}};
  const auto found = gates.find(base);
  return found == gates.end() ? std::nullopt : std::optional(found->second);
}

void check_recurrent(const c10::FunctionSchema& schema, std::int64_t gates,
                     const torch::jit::Stack& stack) {
  const Operands operands(schema, stack);
  const bool is_packed = operands.has("batch_sizes"), has_biases = operands["has_biases"].toBool();
  const at::Tensor input = operands[is_packed ? "data" : "input"].toTensor();
  const c10::IValue& hx = operands["hx"];
  const std::vector<at::Tensor> states =
      hx.isTensor() ? std::vector<at::Tensor>{hx.toTensor()} : hx.toTensorVector();
  const std::vector<at::Tensor> params = operands["params"].toTensorVector();
  const std::int64_t directions = operands["bidirectional"].toBool() ? 2 : 1;
  const std::int64_t layers = operands["num_layers"].toInt();
  const auto fail_if = [&](bool wrong, const char* what) {
    if (wrong) require_shape(at::Tensor(), {}, input, what);
  };
  fail_if(input.dim() != (is_packed ? 2 : 3), "the input");
  fail_if(states.size() != (gates == 4 ? 2u : 1u), "the states");
  fail_if(states[0].dim() != 3 || states.back().dim() != 3, "the states");
  // With a projection, the outputs of an LSTM are smaller than its cells.
  const std::int64_t output = states[0].size(2), hidden = states.back().size(2);
  const bool projects = output != hidden;
  const std::int64_t per_direction = 2 + (has_biases ? 2 : 0) + (projects ? 1 : 0);
  fail_if(layers < 1 || layers > 4096, "the number of layers");
  fail_if(params.size() != static_cast<std::size_t>(layers * directions * per_direction),
          "the number of weights");
  const std::int64_t rows = is_packed                          ? states[0].size(1)
                            : operands["batch_first"].toBool() ? input.size(0)
                                                               : input.size(1);
  require_shape(states[0], {layers * directions, rows, output}, input, "the states");
  require_shape(states.back(), {layers * directions, rows, hidden}, input, "the states");
  std::size_t next = 0;
  for (std::int64_t i = 0; i < layers * directions; ++i) {
    const std::int64_t width = i < directions ? input.size(-1) : output * directions;
    require_shape(params[next++], {gates * hidden, width}, input, "the weights of the input");
    require_shape(params[next++], {gates * hidden, output}, input, "the weights of the state");
    for (int bias = 0; has_biases && bias < 2; ++bias)
      require_shape(params[next++], {gates * hidden}, input, "a bias");
    if (projects) require_shape(params[next++], {output, hidden}, input, "the projection");
  }
}

}  // namespace hasten::exported
