// Compares the counted operations of products, convolutions, attention and recurrent layers with
// PyTorch's counter (generate_flops.py), and with loops that do the same computation and count
// their operations.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hasten/anatomy/anatomy.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/base/text.h"
#include "hasten/machine/gpus.h"

namespace oracle_flops_test {

using namespace hasten;

namespace {

using Json = nlohmann::json;
using Sizes = std::vector<std::int64_t>;

Json flop_cases() {
  std::ifstream file(std::string(HASTEN_TEST_DATA) + "/oracle/data/flops/cases.json");
  REQUIRE(file);
  return Json::parse(file).at("cases");
}

at::Tensor flop_leaf(const Sizes& sizes, bool needs = true,
                     at::TensorOptions options = at::TensorOptions()) {
  // rand uses only operators that a dry run supports.
  return at::rand(sizes, options).requires_grad_(needs);
}

// The operands of a case and the function that computes its result.
struct Program {
  std::vector<at::Tensor> operands;
  std::function<at::Tensor()> run;
};

std::int64_t states_of(const Json& each) {
  return each.at("layers").get<std::int64_t>() * (each.at("bidirectional") ? 2 : 1);
}

Program recurrent_program(const Json& each) {
  const std::int64_t hidden = each.at("hidden"), layers = each.at("layers");
  const bool biases = each.at("biases"), both = each.at("bidirectional");
  const std::string kind = each.at("kind");
  const std::int64_t gates = kind == "lstm" ? 4 : kind == "gru" ? 3 : 1;
  std::vector<at::Tensor> weights;
  for (std::int64_t i = 0; i < states_of(each); ++i) {
    const bool first = i < (both ? 2 : 1);
    const std::int64_t inputs =
        first ? each.at("inputs").get<std::int64_t>() : hidden * (both ? 2 : 1);
    weights.push_back(at::rand({gates * hidden, inputs}).requires_grad_());
    weights.push_back(at::rand({gates * hidden, hidden}).requires_grad_());
    if (!biases) continue;
    for (int bias = 0; bias < 2; ++bias)
      weights.push_back(at::rand({gates * hidden}).requires_grad_());
  }
  const at::Tensor x = flop_leaf({each.at("length"), each.at("batch"), each.at("inputs")});
  const at::Tensor h = at::rand({states_of(each), each.at("batch"), hidden}).requires_grad_();
  const at::Tensor c = at::rand_like(h).requires_grad_();
  return {
      {x, h, c}, [=] {
        if (kind == "lstm") {
          return std::get<0>(at::lstm(x, {h, c}, weights, biases, layers, 0.0, true, both, false));
        }
        return std::get<0>(
            kind == "gru" ? at::gru(x, h, weights, biases, layers, 0.0, true, both, false)
                          : at::rnn_tanh(x, h, weights, biases, layers, 0.0, true, both, false));
      }};
}

struct Convolution {
  Sizes x, kernel, stride, padding, dilation, output_padding;
  std::int64_t out, groups;
  bool transposed;
  explicit Convolution(const Json& each)
      : x(each.at("x")),
        kernel(each.at("kernel")),
        stride(each.at("stride")),
        padding(each.at("padding")),
        dilation(each.at("dilation")),
        output_padding(each.at("output_padding")),
        out(each.at("out")),
        groups(each.at("groups")),
        transposed(each.at("transposed")) {}
  Sizes weight_sizes() const {
    Sizes sizes = {transposed ? x[1] : out, (transposed ? out : x[1]) / groups};
    sizes.insert(sizes.end(), kernel.begin(), kernel.end());
    return sizes;
  }
  at::Tensor of(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) const {
    return at::convolution(input, weight, bias, stride, padding, dilation, transposed,
                           output_padding, groups);
  }
};

Program convolution_program(const Json& each) {
  const Convolution how(each);
  const at::Tensor x = flop_leaf(each.at("x"), each.at("gradients")[0]);
  const at::Tensor weight = flop_leaf(how.weight_sizes(), each.at("gradients")[1]);
  const at::Tensor bias = each.at("bias") ? flop_leaf({how.out}) : at::Tensor();
  return {{x, weight}, [=] { return how.of(x, weight, bias); }};
}

Program attention_program(const Json& each, at::TensorOptions options = {}) {
  const at::Tensor q = flop_leaf(each.at("q"), true, options),
                   k = flop_leaf(each.at("k"), true, options),
                   v = flop_leaf(each.at("v"), true, options);
  const bool causal = each.at("causal");
  return {{q, k, v}, [=] { return at::scaled_dot_product_attention(q, k, v, {}, 0.0, causal); }};
}

Program flop_program(const Json& each) {
  const std::string kind = each.at("kind");
  if (kind == "lstm" || kind == "gru" || kind == "rnn") return recurrent_program(each);
  if (kind == "convolution") return convolution_program(each);
  if (kind == "attention") return attention_program(each);
  if (kind == "linear") {
    const at::Tensor x = flop_leaf(each.at("x")),
                     weight = flop_leaf({each.at("out"), each.at("x").back()}),
                     bias = each.at("bias") ? flop_leaf({each.at("out")}) : at::Tensor();
    return {{x, weight}, [=] { return at::linear(x, weight, bias); }};
  }
  std::vector<at::Tensor> x;
  for (const Json& sizes : each.at("shapes")) x.push_back(flop_leaf(sizes));
  if (kind == "einsum") {
    const std::string equation = each.at("equation");
    return {x, [=] { return at::einsum(equation, x); }};
  }
  if (kind == "addmm") return {x, [=] { return at::addmm(x[0], x[1], x[2]); }};
  if (kind == "baddbmm") return {x, [=] { return at::baddbmm(x[0], x[1], x[2]); }};
  REQUIRE(kind == "matmul");
  return {x, [=] { return at::matmul(x[0], x[1]); }};
}

// Counts only products, convolutions and attention, as PyTorch does.
double contractions(const anatomy::Report& report, anatomy::Phase phase) {
  double flops = 0;
  for (const auto& each : report.operations) {
    if (each.phase == phase && each.group == anatomy::OperationGroup::tensor_contraction)
      flops += each.flops;
  }
  return flops;
}

struct Passes {
  double forward = 0, backward = 0;
  std::string not_counted;  // names of operators without a formula
};

Passes passes_of(const Program& program) {
  Anatomy anatomy;
  at::Tensor out;
  {
    const PhaseScope phase = anatomy.forward();
    out = program.run();
  }
  const at::Tensor above = at::ones_like(out);
  {
    const PhaseScope phase = anatomy.backward();
    out.backward(above);
  }
  const anatomy::Report report = anatomy.report();
  return {contractions(report, anatomy::Phase::forward),
          contractions(report, anatomy::Phase::backward), join(report.without_formula, ", ")};
}

// Returns PyTorch's count, or hasten's count in the cases that differ on purpose.
Passes expected_of(const Json& each) {
  const std::string name = each.at("name");
  Passes expected{each.at("forward"), each.at("backward"), {}};
  // PyTorch's counter does not know mv and dot. Their gradients are one product with the vector and
  // products of single numbers, which are element-wise.
  if (name == "batch of matrices by a vector") expected = {2 * 2 * 3 * 4, 2 * 2 * 3 * 4, {}};
  if (name == "matrix by a vector") expected = {2 * 3 * 4, 2 * 3 * 4, {}};
  if (name == "a vector by a batch of matrices") expected = {2 * 2 * 4 * 5, 2 * 2 * 4 * 5, {}};
  if (name == "dot") expected = {2 * 4, 0, {}};
  // The CPU kernel needs values that are as wide as keys. Otherwise attention is two products,
  // whose gradients do not recompute the scores.
  if (name == "attention with wider values") expected.backward = 2 * expected.forward;
  // PyTorch's counter ignores the groups in the gradient of a weight, so its count is too large by
  // a factor of the number of groups. Each of the two gradients takes the same number of operations
  // as the forward pass.
  if (each.at("kind") == "convolution" && each.at("groups") > 1)
    expected.backward = 2 * expected.forward;
  return expected;
}

}  // namespace

TEST_CASE("flops: operators of each kind are counted as PyTorch counts them") {
  int compared = 0;
  for (const Json& each : flop_cases()) {
    const std::string name = each.at("name");
    CAPTURE(name);
    const Passes expected = expected_of(each);
    const Program program = flop_program(each);
    const Passes measured = passes_of(program);
    CHECK(measured.forward == expected.forward);
    CHECK(measured.backward == expected.backward);
    CHECK(measured.not_counted == "");
    ++compared;
  }
  CHECK(compared >= 59);
}

TEST_CASE("flops: a prediction counts what a measurement counts") {
  int compared = 0;
  for (const Json& each : flop_cases()) {
    const std::string name = each.at("name");
    CAPTURE(name);
    const DryRun dry;
    const Passes predicted = passes_of(flop_program(each)), expected = expected_of(each);
    CHECK(predicted.forward == expected.forward);
    CHECK(predicted.backward == expected.backward);
    ++compared;
  }
  CHECK(compared >= 59);
}

TEST_CASE("flops: attention on a GPU counts the same with every kernel") {
  int compared = 0;
  for (const Json& each : flop_cases()) {
    if (each.at("kind") != "attention") continue;
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const std::string name = each.at("name");
      CAPTURE(name);
      CAPTURE(type == at::kFloat);
      const DryRun dry(find_gpu("cuda:a100-80gb"));
      const Passes predicted =
          passes_of(attention_program(each, at::TensorOptions(at::kCUDA).dtype(type)));
      CHECK(predicted.forward == each.at("forward").get<double>());
      CHECK(predicted.backward == each.at("backward").get<double>());
      ++compared;
    }
  }
  CHECK(compared >= 10);
}

TEST_CASE("flops: gradients of gradients are counted as PyTorch counts them") {
  int compared = 0;
  for (const Json& each : flop_cases()) {
    if (!each.contains("double_backward")) continue;
    const std::string name = each.at("name");
    CAPTURE(name);
    const Program program = flop_program(each);
    const at::Tensor out = program.run();
    const at::Tensor above = at::ones_like(out).requires_grad_();
    const auto gradients = torch::autograd::grad({out}, program.operands, {above}, true, true);
    at::Tensor total = gradients[0].sum();
    for (std::size_t i = 1; i < gradients.size(); ++i) total = total + gradients[i].sum();
    std::vector<at::Tensor> by = program.operands;
    by.push_back(above);
    Anatomy anatomy;
    {
      const PhaseScope phase = anatomy.backward();
      (void)torch::autograd::grad({total}, by, {}, {}, false, /*allow_unused=*/true);
    }
    CHECK(contractions(anatomy.report(), anatomy::Phase::backward) ==
          each.at("double_backward").get<double>());
    ++compared;
  }
  CHECK(compared >= 6);
}

namespace {

// Converts the row-major number of an element to its indices.
Sizes indices_of(std::int64_t number, const Sizes& sizes) {
  Sizes indices(sizes.size());
  for (std::size_t d = sizes.size(); d-- > 0;) {
    indices[d] = number % sizes[d];
    number /= sizes[d];
  }
  return indices;
}
std::int64_t number_of(const Sizes& indices, const Sizes& sizes) {
  std::int64_t number = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (indices[d] < 0 || indices[d] >= sizes[d]) return -1;
    number = number * sizes[d] + indices[d];
  }
  return number;
}
std::int64_t count_in(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

// Calls visit(x, weight, y) for every multiplication of a convolution. The arguments are the
// numbers of the three elements. x or y is -1 in the padding, because the kernels count it too.
template <class Visit>
void each_multiplication(const Convolution& how, const Sizes& y, Visit visit) {
  const Sizes weight = how.weight_sizes();
  const Sizes& walked = how.transposed ? how.x : y;  // each of its elements uses the whole kernel
  const std::int64_t channels = weight[1];
  const Sizes behind(weight.begin() + 1, weight.end());
  for (std::int64_t i = 0; i < count_in(walked); ++i) {
    const Sizes here = indices_of(i, walked);
    const std::int64_t group = here[1] / (walked[1] / how.groups);
    for (std::int64_t j = 0; j < count_in(behind); ++j) {
      const Sizes at = indices_of(j, behind);
      Sizes there = {here[0], group * channels + at[0]};
      for (std::size_t d = 0; d < how.kernel.size(); ++d) {
        there.push_back(here[d + 2] * how.stride[d] - how.padding[d] + at[d + 1] * how.dilation[d]);
      }
      const std::int64_t other = number_of(there, how.transposed ? y : how.x);
      visit(how.transposed ? i : other, here[1] * count_in(behind) + j, how.transposed ? other : i);
    }
  }
}

}  // namespace

TEST_CASE("flops: a convolution takes as many operations as a loop") {
  int compared = 0;
  for (const Json& each : flop_cases()) {
    if (each.at("kind") != "convolution" || count_in(each.at("x").get<Sizes>()) == 0) continue;
    const std::string name = each.at("name");
    CAPTURE(name);
    const Convolution how(each);
    const at::Tensor x = at::rand(how.x, at::kDouble).requires_grad_(),
                     weight = at::rand(how.weight_sizes(), at::kDouble).requires_grad_();
    const at::Tensor y = how.of(x, weight, {});
    const at::Tensor dy = at::rand_like(y);
    const auto gradients = torch::autograd::grad({y}, {x, weight}, {dy});
    // Does the same computation with loops that count.
    at::Tensor own = at::zeros_like(y), dx = at::zeros_like(x), dw = at::zeros_like(weight);
    double forward = 0, of_input = 0, of_weight = 0;
    const auto data = [](const at::Tensor& tensor) { return tensor.data_ptr<double>(); };
    double *const xs = data(x), *const ws = data(weight), *const dys = data(dy);
    double *const ys = data(own), *const dxs = data(dx), *const dws = data(dw);
    each_multiplication(how, y.sizes().vec(), [&](std::int64_t i, std::int64_t w, std::int64_t o) {
      const double from = i < 0 ? 0 : xs[i], above = o < 0 ? 0 : dys[o];
      if (o >= 0) ys[o] += from * ws[w];
      forward += 2;
      if (i >= 0) dxs[i] += above * ws[w];
      of_input += 2;
      dws[w] += above * from;
      of_weight += 2;
    });
    CHECK(at::allclose(own, y));
    CHECK(at::allclose(dx, gradients[0]));
    CHECK(at::allclose(dw, gradients[1]));
    const Passes measured = passes_of(flop_program(each));
    CHECK(measured.forward == forward);
    CHECK(measured.backward == of_input * each.at("gradients")[0].get<bool>() +
                                   of_weight * each.at("gradients")[1].get<bool>());
    ++compared;
  }
  CHECK(compared >= 17);
}

TEST_CASE("flops: a matrix product takes as many operations as a loop") {
  int compared = 0;
  for (const Json& each : flop_cases()) {
    if (each.at("kind") != "matmul") continue;
    const std::string name = each.at("name");
    CAPTURE(name);
    const Program program = flop_program(each);
    at::Tensor a = program.operands[0].detach(), b = program.operands[1].detach();
    if (a.dim() == 1) a = a.unsqueeze(0);
    if (b.dim() == 1) b = b.unsqueeze(1);
    const auto batch =
        at::infer_size(a.sizes().slice(0, a.dim() - 2), b.sizes().slice(0, b.dim() - 2));
    const auto in_batches = [&](const at::Tensor& matrix) {
      Sizes sizes(batch);
      sizes.insert(sizes.end(), matrix.sizes().end() - 2, matrix.sizes().end());
      return matrix.expand(sizes).reshape({count_in(batch), matrix.size(-2), matrix.size(-1)});
    };
    a = in_batches(a);
    b = in_batches(b);
    at::Tensor out = at::zeros({a.size(0), a.size(1), b.size(2)});
    double forward = 0;
    for (std::int64_t n = 0; n < out.size(0); ++n) {
      for (std::int64_t i = 0; i < out.size(1); ++i) {
        for (std::int64_t j = 0; j < out.size(2); ++j) {
          for (std::int64_t k = 0; k < a.size(2); ++k) {
            out[n][i][j] += a[n][i][k] * b[n][k][j];
            forward += 2;
          }
        }
      }
    }
    const at::Tensor real = program.run().detach();
    CHECK(at::allclose(out.flatten(), real.flatten()));
    CHECK(passes_of(program).forward == forward);
    ++compared;
  }
  CHECK(compared >= 14);
}

}  // namespace oracle_flops_test
