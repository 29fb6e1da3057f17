// Compares every operator with the same arithmetic in LibTorch's own operators, forward and
// backward.
#include <ATen/Version.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "autograd/operator_calls.h"
#include "hasten/base/error.h"
#include "hasten/ops/ops.h"
#include "ops/kernels/kernels.h"
#include "processor_time.h"
#include "unit/ops/operator_checks.h"

namespace ops_ops_test {

using namespace hasten;
using at::Tensor;
using namespace hasten::operator_checks;

TEST_CASE("ops: linear equals LibTorch's for small and large products, with and without bias") {
  torch::manual_seed(1);
  for (const auto& [rows, in, out] :
       {std::array<std::int64_t, 3>{3, 5, 7}, {64, 256, 512}, {130, 300, 129}}) {
    const Tensor x = leaf({2, rows, in}), w = leaf({out, in}), b = leaf({out});
    check_same(ops::linear(x, w, b), at::linear(x, w, b), {x, w, b}, 3e-4);
    check_same(ops::linear(x, w, {}), at::linear(x, w), {x, w}, 3e-4);
  }
}

TEST_CASE("ops: linear refuses shapes that do not fit") {
  CHECK_THROWS_AS(ops::linear(at::ones({2, 3}), at::ones({4, 5}), {}), c10::Error);
}

TEST_CASE("ops: bias_gelu equals gelu(x + bias)") {
  torch::manual_seed(2);
  const Tensor x = leaf({3, 17, 129}), b = leaf({129});
  check_same(ops::bias_gelu(x, b), at::gelu(x + b), {x, b}, 2e-6);
  const Tensor far =
      at::tensor({-30.0f, -9.0f, -5.5f, 0.0f, 5.5f, 30.0f, 1e30f, -1e30f}).view({1, 8});
  CHECK(distance(ops::bias_gelu(far, at::zeros({8})).slice(1, 0, 6), at::gelu(far).slice(1, 0, 6)) <
        1e-6);
  CHECK(ops::bias_gelu(at::full({1, 4}, NAN), at::zeros({4})).isnan().all().item<bool>());
}

TEST_CASE("ops: dropout_add_norm without dropout equals layer_norm(x + bias + residual)") {
  torch::manual_seed(3);
  const Tensor x = leaf({4, 9, 200}), b = leaf({200}), r = leaf({4, 9, 200}), g = leaf({200}),
               be = leaf({200});
  check_same(ops::dropout_add_norm(x, b, r, g, be, 1e-12, 0.1, /*training=*/false),
             at::layer_norm(x + b + r, {200}, g, be, 1e-12), {x, b, r, g, be}, 1e-5);
}

TEST_CASE("ops: dropout drops the given share, scales the rest, and backward does the same") {
  torch::manual_seed(4);
  const Tensor x = at::ones({400, 300}).requires_grad_();
  const Tensor y = ops::dropout(x, 0.1, true);
  const double kept = y.ne(0).to(at::kFloat).mean().item<double>();
  CHECK(std::abs(kept - 0.9) < 0.004);
  CHECK(std::abs(y.mean().item<double>() - 1.0) < 0.005);
  y.sum().backward();
  CHECK(distance(x.grad(), y) == 0);
  CHECK(at::equal(ops::dropout(x, 0.1, false), x));
}

TEST_CASE("ops: one seed drops the same elements with any number of threads") {
  const Tensor x = at::ones({300, 129});
  const int threads = at::get_num_threads();
  torch::manual_seed(5);
  const Tensor a = ops::dropout(x, 0.3, true), other = ops::dropout(x, 0.3, true);
  torch::manual_seed(5);
  at::set_num_threads(1);
  const Tensor b = ops::dropout(x, 0.3, true);
  at::set_num_threads(threads);
  CHECK(at::equal(a, b));
  CHECK_FALSE(at::equal(a, other));
  // There is no pattern along rows or columns: neighbours agree as often as chance predicts.
  const Tensor kept = a.ne(0).to(at::kFloat);
  CHECK(std::abs((kept.slice(0, 1) * kept.slice(0, 0, -1)).mean().item<double>() - 0.49) < 0.015);
  CHECK(std::abs((kept.slice(1, 1) * kept.slice(1, 0, -1)).mean().item<double>() - 0.49) < 0.015);
}

// tests/portability runs this file with each of these variables; without them there is nothing to
// check.
TEST_CASE("ops: environment variables choose the instruction sets") {
  if (const char* requested = std::getenv("HASTEN_CPU_KERNELS"))
    CHECK(std::string(ops::kernels().isa) == std::string(requested));
  if (const char* requested = std::getenv("ATEN_CPU_CAPABILITY")) {
    std::string capability = at::get_cpu_capability();
    for (char& letter : capability) letter = static_cast<char>(std::tolower(letter));
    CHECK(capability == std::string(requested));
  }
}

TEST_CASE("ops: an instruction set is chosen by its name, and an unknown one is refused") {
  for (const ops::Kernels* set : ops::runnable_kernels())
    CHECK(&ops::choose_kernels(set->isa) == set);
  CHECK(&ops::choose_kernels("") == ops::runnable_kernels().back());
  CHECK_THROWS_WITH_AS(ops::choose_kernels("avx3"), doctest::Contains("can run: baseline"),
                       ConfigError);
}

TEST_CASE("ops: every instruction set gives the same decisions and the same numbers") {
  const ops::Dropout dropout = ops::Dropout::make(0.25, 12345);
  const std::int64_t rows = 7, columns = 301;
  const Tensor x = at::randn({rows, columns}), bias = at::randn({columns});
  std::vector<Tensor> dropped, activated;
  for (const ops::Kernels* set : ops::runnable_kernels()) {
    Tensor y = at::empty_like(x), z = at::empty_like(x);
    set->f32.dropout(x.const_data_ptr<float>(), dropout, 3, y.mutable_data_ptr<float>(), rows,
                     columns);
    set->f32.bias_gelu(x.const_data_ptr<float>(), bias.const_data_ptr<float>(),
                       z.mutable_data_ptr<float>(), rows, columns);
    dropped.push_back(y);
    activated.push_back(z);
  }
  for (std::size_t i = 1; i < dropped.size(); ++i) {
    CHECK(at::equal(dropped[0], dropped[i]));
    CHECK(distance(activated[0], activated[i]) < 1e-6);
  }
}

TEST_CASE("ops: the gradient of dropout_add_norm uses the decisions of its forward pass") {
  torch::manual_seed(6);
  const Tensor x = leaf({5, 64}), b = leaf({64}), r = leaf({5, 64}), g = leaf({64}),
               be = leaf({64});
  torch::manual_seed(7);
  const Tensor y = ops::dropout_add_norm(x, b, r, g, be, 1e-5, 0.4, true);
  torch::manual_seed(7);
  const Tensor mask =
      ops::dropout(at::ones({5, 64}), 0.4,
                   true);  // the same seed, rows and columns give the same decisions
  check_same(y, at::layer_norm((x + b) * mask + r, {64}, g, be, 1e-5), {x, b, r, g, be}, 1e-5);
}

TEST_CASE("ops: dropout_add_pre_norm on the CPU is dropout, a sum and a norm, to the bit") {
  torch::manual_seed(6);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const Tensor x = at::randn({5, 64}).to(type).requires_grad_(), b = leaf({64}),
                 r = leaf({5, 64}), g = leaf({64}), be = leaf({64});
    CHECK_FALSE(ops::fuses_pre_norm(r));
    for (const Tensor& beta : {be, Tensor()}) {
      torch::manual_seed(7);
      const ops::NormedStream got = ops::dropout_add_pre_norm(x, b, r, g, beta, 1e-5, 0.4, true);
      torch::manual_seed(7);
      const Tensor stream = r + ops::dropout(x + b, 0.4, true);
      CHECK(at::equal(got.stream, stream));
      CHECK(at::equal(got.normed, beta.defined() ? at::layer_norm(stream, {64}, g, beta, 1e-5)
                                                 : ops::rms_norm(stream, g, 1e-5)));
    }
    CHECK(at::equal(ops::dropout_add_pre_norm(x, {}, r, g, be, 1e-5, 0, false).stream, r + x));
  }
  const Tensor x = at::ones({2, 8}), g = at::ones({8});
  CHECK_THROWS_AS(ops::dropout_add_pre_norm(x, g, x, g, at::ones({7}), 1e-5, 0, true), c10::Error);
  CHECK_THROWS_AS(ops::dropout_add_pre_norm(x, at::ones({7}), x, g, g, 1e-5, 0, true), c10::Error);
  CHECK_THROWS_AS(ops::dropout_add_pre_norm(x, {}, at::ones({3, 8}), g, g, 1e-5, 0, true),
                  c10::Error);
}

TEST_CASE("ops: the fused operators in bfloat16 stay within its rounding of the float results") {
  torch::manual_seed(12);
  const Tensor x = at::randn({6, 100}), b = at::randn({100}), r = at::randn({6, 100}),
               g = at::randn({100}), be = at::randn({100});
  const Tensor low = x.to(at::kBFloat16);
  CHECK(distance(ops::bias_gelu(low, b).to(at::kFloat), at::gelu(low.to(at::kFloat) + b)) < 0.02);
  const Tensor y = ops::dropout_add_norm(low, b, r.to(at::kBFloat16), g, be, 1e-5, 0, false);
  CHECK((y.scalar_type() == at::kBFloat16));
  CHECK(distance(y.to(at::kFloat), at::layer_norm(low.to(at::kFloat) + b + r, {100}, g, be, 1e-5)) <
        0.06);
}

TEST_CASE("ops: each operator is in LibTorch's dispatcher and ignores tensors without data") {
  for (const char* name :
       {"bias_gelu", "bias_gelu_backward", "dropout", "dropout_add_norm",
        "dropout_add_norm_backward", "attention", "attention_backward", "column_sum",
        "embedding_sum", "embedding_scatter", "embedding_gather", "rms_norm", "rms_norm_backward",
        "silu_multiply", "silu_multiply_backward", "rotate", "adamw", "adamw_rows",
        "sum_of_squares"}) {
    CAPTURE(name);
    const auto op = c10::Dispatcher::singleton().findSchema({std::string("hasten::") + name, ""});
    REQUIRE(op.has_value());
    CHECK(op->hasKernelForDispatchKey(c10::DispatchKey::CPU));
    CHECK(op->hasKernelForDispatchKey(c10::DispatchKey::Meta));
    CHECK(op->schema().returns().empty());
  }
  const Tensor x = at::empty({3, 4}, at::kMeta), y = at::empty({3, 4}, at::kMeta);
  c10::Dispatcher::singleton()
      .findSchemaOrThrow("hasten::dropout", "")
      .typed<void(const Tensor&, std::int64_t, double, const Tensor&,
                  const std::optional<Tensor>&)>()
      .call(x, 1, 0.5, y, std::nullopt);
}

TEST_CASE("ops: an in-place change of an input between forward and backward is detected") {
  const Tensor w = leaf({4, 6}), source = leaf({3, 6});
  Tensor x = source * 1;
  const Tensor y = ops::linear(x, w, {});
  x.add_(1);
  CHECK_THROWS_AS(y.sum().backward(), c10::Error);
}

TEST_CASE("ops: linear_transposed equals the product with the matrix as it is stored") {
  torch::manual_seed(21);
  for (const auto& [rows, in, out] :
       {std::array<std::int64_t, 3>{3, 5, 7}, {64, 256, 512}, {130, 300, 129}}) {
    const Tensor x = leaf({2, rows, in}), w = leaf({in, out}), b = leaf({out});
    check_same(ops::linear_transposed(x, w, b), at::matmul(x, w) + b, {x, w, b}, 3e-4);
    check_same(ops::linear_transposed(x, w, {}), at::matmul(x, w), {x, w}, 3e-4);
    const Tensor gradient =
        gradients(ops::linear_transposed(x, w, b), at::ones({2, rows, out}), {w})[0];
    CHECK(gradient.is_contiguous());  // like the parameter, so that an optimizer copies nothing
  }
  const Tensor x = leaf({3, 4}), w = leaf({4, 2});
  const Tensor first = torch::autograd::grad({ops::linear_transposed(x, w, {}).square().sum()}, {w},
                                             {}, true, /*create_graph=*/true)[0];
  const Tensor same =
      torch::autograd::grad({at::matmul(x, w).square().sum()}, {w}, {}, true, true)[0];
  CHECK(distance(torch::autograd::grad({first.square().sum()}, {x})[0],
                 torch::autograd::grad({same.square().sum()}, {x})[0]) < 1e-4);
  CHECK_THROWS_AS(ops::linear_transposed(at::ones({2, 3}), at::ones({4, 3}), {}), c10::Error);
}

namespace {

// Sets LibTorch's number of threads and restores it at the end of the scope.
class ThreadCountScope {
 public:
  explicit ThreadCountScope(int count) : before_(at::get_num_threads()) {
    at::set_num_threads(count);
  }
  ~ThreadCountScope() { at::set_num_threads(before_); }

 private:
  int before_;
};

// Returns the share of the processor time of `work` that threads other than this one used.
template <class Work>
double share_of_other_threads(Work work) {
  const double all = processor_seconds(), own = thread_seconds();
  work();
  const double of_all = processor_seconds() - all;
  return 1 - (thread_seconds() - own) / of_all;
}

// Returns the results and gradients of every operator that divides its rows among threads. The
// tensors are large enough to be divided.
std::vector<Tensor> large_operators() {
  at::manual_seed(3);
  const Tensor x = leaf({8, 96, 128}), r = leaf({8, 96, 128}), b = leaf({128}), g = leaf({128}),
               be = leaf({128}), w = leaf({256, 128});
  Tensor mask = at::ones({8, 96}, at::kLong);
  for (int row = 0; row < 8; ++row) mask[row].slice(0, 96 - 11 * row).zero_();
  const Tensor ids = at::randint(0, 50, {8, 96}), table = leaf({50, 128}), more = leaf({96, 128});
  std::vector<Tensor> all = {
      ops::bias_gelu(x, b),
      ops::dropout(x, 0.1, true),
      ops::dropout_add_norm(x, b, r, g, be, 1e-5, 0.1, true),
      ops::attention(x, r, x, ops::KeyMask(mask), 4, 0.1, true),
      ops::attention(x, r, x, ops::KeyMask(Tensor()), 4, 0.1, true),
      ops::linear(x, w, {}),
      ops::embedding_sum(table, more, more, ids, {}, {}, -1, false),
  };
  Tensor sum = at::zeros({});
  for (const Tensor& each : all) sum = sum + (each * each).sum();
  for (const Tensor& each : torch::autograd::grad({sum}, {x, r, b, g, be, w, table, more}))
    all.push_back(each);
  return all;
}

}  // namespace

TEST_CASE("ops: rows are divided among LibTorch's threads") {
  const ThreadCountScope two(2);
  const Tensor x = at::randn({4096, 512}), b = at::randn({512});
  const Tensor q = at::randn({16, 128, 256});
  ops::bias_gelu(x, b);  // starts the threads
  const auto repeat = [](auto operation) {
    return share_of_other_threads([&] {
      for (int i = 0; i < 20; ++i) operation();
    });
  };
  CHECK(repeat([&] { ops::bias_gelu(x, b); }) > 0.2);
  CHECK(repeat([&] { ops::attention(q, q, q, ops::KeyMask(Tensor()), 4, 0.1, true); }) > 0.2);
}

TEST_CASE("ops: the number of threads changes only the order of sums") {
  const auto results_with = [](int count) {
    const ThreadCountScope threads(count);
    return large_operators();
  };
  const std::vector<Tensor> alone = results_with(1);
  for (const int count : {2, 3, 5}) {
    CAPTURE(count);
    const std::vector<Tensor> shared = results_with(count), again = results_with(count);
    for (std::size_t i = 0; i < alone.size(); ++i) {
      CAPTURE(i);
      CHECK(distance(shared[i], alone[i]) <= 1e-4 * (1 + alone[i].abs().max().item<double>()));
      CHECK(at::equal(shared[i], again[i]));
    }
  }
}

// For operands with gaps, oneDNN has only a reference implementation, which is a hundred times
// slower.
TEST_CASE("ops: a product of rows with gaps between them is about as fast as one of dense rows") {
  const Tensor whole = at::randn({48, 40, 384}), w = leaf({384, 384});
  const auto milliseconds = [&](const Tensor& x) {
    double least = 1e9;
    for (int i = 0; i < 5; ++i) {
      const double before = processor_seconds();
      ops::linear(x, w, {}).sum().backward();
      least = std::min(least, 1e3 * (processor_seconds() - before));
    }
    return least;
  };
  const Tensor strided = whole.select(1, 0), dense = strided.contiguous();
  CHECK(distance(ops::linear(strided, w, {}), ops::linear(dense, w, {})) < 1e-3);
  CHECK(milliseconds(strided) < 10 * milliseconds(dense) + 1);
}

}  // namespace ops_ops_test
