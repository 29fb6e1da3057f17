// Compares every operator with the same arithmetic in LibTorch's own operators, forward and
// backward.
#include "hasten/ops/ops.h"

#include <ATen/Version.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <doctest/doctest.h>
#include <time.h>
#include <torch/torch.h>

#include <algorithm>
#include <vector>

#include "hasten/base/error.h"
#include "ops/kernels/kernels.h"

namespace ops_ops_test {

using namespace hasten;
using at::Tensor;

namespace {

Tensor leaf(at::IntArrayRef sizes) { return at::randn(sizes).requires_grad_(); }

double distance(const Tensor& a, const Tensor& b) { return (a - b).abs().max().item<double>(); }

// The gradients of sum(weights * f()) with respect to each input.
std::vector<Tensor> gradients(const Tensor& y, const Tensor& weights,
                              const std::vector<Tensor>& inputs) {
  return torch::autograd::grad({(y * weights).sum()}, inputs);
}

void check_same(const Tensor& fused, const Tensor& reference, const std::vector<Tensor>& inputs,
                double tolerance) {
  CHECK(distance(fused, reference) <= tolerance);
  const Tensor weights = at::randn(fused.sizes());
  const auto a = gradients(fused, weights, inputs), b = gradients(reference, weights, inputs);
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    CHECK(distance(a[i], b[i]) <= tolerance * (1 + b[i].abs().max().item<double>()));
  }
}

}  // namespace

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
  if (const char* wish = std::getenv("HASTEN_CPU_KERNELS"))
    CHECK(std::string(ops::kernels().isa) == std::string(wish));
  if (const char* wish = std::getenv("ATEN_CPU_CAPABILITY")) {
    std::string capability = at::get_cpu_capability();
    for (char& letter : capability) letter = static_cast<char>(std::tolower(letter));
    CHECK(capability == std::string(wish));
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

TEST_CASE("ops: attention equals LibTorch's, masked and unmasked, forward and backward") {
  torch::manual_seed(8);
  const std::int64_t batch = 3, length = 37, heads = 4, size = 16;
  const Tensor q = leaf({batch, length, heads * size}), k = leaf({batch, length, heads * size}),
               v = leaf({batch, length, heads * size});
  Tensor padded = at::ones({batch, length}, at::kLong), holes = padded.clone();
  padded[0].slice(0, 20).zero_();
  padded[2].slice(0, 1).zero_();
  holes[1].slice(0, 3, 9).zero_();
  const auto split = [&](const Tensor& x) {
    return x.view({batch, length, heads, size}).transpose(1, 2);
  };
  for (const Tensor& mask : {Tensor(), padded, holes}) {
    std::optional<Tensor> allowed;
    if (mask.defined())
      allowed = mask.to(at::kBool).view({batch, 1, 1, length}).expand({batch, 1, length, length});
    const Tensor reference = at::scaled_dot_product_attention(split(q), split(k), split(v), allowed)
                                 .transpose(1, 2)
                                 .reshape(q.sizes());
    check_same(ops::attention(q, k, v, ops::KeyMask(mask), heads, 0.0, true), reference, {q, k, v},
               1e-5);
  }
}

TEST_CASE("ops: attention under dropout is the product with the dropped probabilities") {
  torch::manual_seed(9);
  const std::int64_t length = 24, heads = 2, size = 8;
  const Tensor q = leaf({1, length, heads * size}), k = leaf({1, length, heads * size}),
               v = leaf({1, length, heads * size});
  torch::manual_seed(10);
  const Tensor fused = ops::attention(q, k, v, ops::KeyMask({}), heads, 0.3, true);
  torch::manual_seed(10);
  const Tensor mask =
      ops::dropout(at::ones({heads * length, length}), 0.3, true).view({1, heads, length, length});
  const auto split = [&](const Tensor& x) {
    return x.view({1, length, heads, size}).transpose(1, 2);
  };
  const Tensor p =
      at::softmax(at::matmul(split(q), split(k).transpose(2, 3)) / std::sqrt(8.0), -1) * mask;
  check_same(fused, at::matmul(p, split(v)).transpose(1, 2).reshape(q.sizes()), {q, k, v}, 1e-5);
}

TEST_CASE("ops: a row with nothing to attend to gives zeros and no NaN") {
  const Tensor q = leaf({1, 4, 8}), k = leaf({1, 4, 8}), v = leaf({1, 4, 8});
  const Tensor y =
      ops::attention(q, k, v, ops::KeyMask(at::zeros({1, 4}, at::kLong)), 2, 0.0, true);
  CHECK(y.abs().max().item<double>() == 0);
  for (const Tensor& gradient : gradients(y, at::ones_like(y), {q, k, v}))
    CHECK(gradient.isfinite().all().item<bool>());
}

TEST_CASE("ops: embedding_sum adds three tables, and its sparse gradient equals the dense one") {
  torch::manual_seed(11);
  const Tensor word = leaf({50, 12}), position = leaf({16, 12}), type = leaf({2, 12});
  const Tensor ids = at::randint(0, 50, {3, 10}), types = at::randint(0, 2, {3, 10});
  const Tensor positions = at::randint(0, 16, {3, 10});
  for (const Tensor& at_positions : {Tensor(), positions}) {
    const auto reference = [&] {
      return at::embedding(word, ids, 7) + at::embedding(type, types) +
             (at_positions.defined() ? at::embedding(position, at_positions)
                                     : position.slice(0, 0, 10));
    };
    check_same(ops::embedding_sum(word, position, type, ids, at_positions, types, 7, false),
               reference(), {word, position, type}, 1e-6);
    const Tensor weights = at::randn({3, 10, 12});
    const Tensor sparse =
        gradients(ops::embedding_sum(word, position, type, ids, at_positions, types, 7, true),
                  weights, {word})[0];
    const Tensor dense = gradients(reference(), weights, {word})[0];
    REQUIRE(sparse.is_sparse());
    CHECK(sparse.is_coalesced());
    CHECK(distance(sparse.to_dense(), dense) < 1e-6);
  }
}

TEST_CASE("ops: the error for an id outside the table names its row and position") {
  Tensor ids = at::zeros({2, 3}, at::kLong);
  ids[1][2] = 9;
  try {
    ops::embedding_sum(at::zeros({9, 4}), at::zeros({8, 4}), at::zeros({2, 4}), ids, {}, {}, -1,
                       false);
    FAIL("expected an error");
  } catch (const DataError& error) {
    CHECK(error.code() == "models.id-out-of-range");
    CHECK(std::string(error.what()) ==
          "input_ids, row 1 position 2 of the batch: got id 9, expected 0 to 8. Hint: use the "
          "tokenizer that belongs to the model");
  }
  CHECK_THROWS_AS(ops::embedding_sum(at::zeros({9, 4}), at::zeros({2, 4}), at::zeros({2, 4}),
                                     at::zeros({1, 3}, at::kLong), {}, {}, -1, false),
                  DataError);
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

TEST_CASE("ops: each is an operator of LibTorch's dispatcher, and ignores tensors without data") {
  for (const char* name : {"bias_gelu", "bias_gelu_backward", "dropout", "dropout_add_norm",
                           "dropout_add_norm_backward", "attention", "attention_backward",
                           "column_sum", "embedding_sum", "embedding_scatter", "embedding_gather",
                           "adamw", "adamw_rows", "sum_of_squares"}) {
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
      .typed<void(const Tensor&, std::int64_t, double, const Tensor&)>()
      .call(x, 1, 0.5, y);
}

TEST_CASE("ops: an in-place change of an input between forward and backward is detected") {
  const Tensor w = leaf({4, 6}), source = leaf({3, 6});
  Tensor x = source * 1;
  const Tensor y = ops::linear(x, w, {});
  x.add_(1);
  CHECK_THROWS_AS(y.sum().backward(), c10::Error);
}

// The rows have 3, 7 and 5 tokens, packed and with padding.
TEST_CASE("ops: attention of packed rows equals that of padded rows") {
  const std::vector<std::int64_t> lengths = {3, 7, 5};
  const auto pad = [&](const Tensor& x) {
    return at::pad_sequence(x.squeeze(0).split_with_sizes(lengths), /*batch_first=*/true);
  };
  const auto pack = [&](const Tensor& x) {
    return at::cat({x[0].narrow(0, 0, 3), x[1].narrow(0, 0, 7), x[2].narrow(0, 0, 5)}).unsqueeze(0);
  };
  Tensor mask = at::zeros({3, 7}, at::kLong);
  for (std::int64_t row = 0; row < 3; ++row)
    mask[row].narrow(0, 0, lengths[static_cast<std::size_t>(row)]).fill_(1);
  const ops::KeyMask packed = ops::KeyMask::packed(lengths), whole(mask);
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (const double p : {0.0, 0.3}) {
      CAPTURE(p);
      const auto make = [&] { return at::randn({1, 15, 8}, type).requires_grad_(); };
      const Tensor q = make(), k = make(), v = make();
      const auto attend = [&](bool packs) {
        at::manual_seed(4);  // the same dropout
        return packs ? ops::attention(q, k, v, packed, 2, p, true)
                     : pack(ops::attention(pad(q), pad(k), pad(v), whole, 2, p, true));
      };
      check_same(attend(true), attend(false), {q, k, v}, 1e-5);
      // The second derivatives agree too.
      const auto penalty = [&](const Tensor& y) {
        Tensor sum = at::zeros({}, type);
        for (const Tensor& each : torch::autograd::grad({y.square().sum()}, {q, k, v}, {}, true,
                                                        /*create_graph=*/true))
          sum = sum + each.square().sum();
        return sum;
      };
      const Tensor fused = penalty(attend(true)), reference = penalty(attend(false));
      const auto a = torch::autograd::grad({fused}, {q, k, v}),
                 b = torch::autograd::grad({reference}, {q, k, v});
      for (std::size_t i = 0; i < 3; ++i)
        CHECK(distance(a[i], b[i]) <= 1e-4 * (1 + b[i].abs().max().item<double>()));
    }
  }
  const Tensor x = at::randn({1, 15, 8});
  CHECK(distance(ops::eager_attention(x, x, x, packed, 2, 0, false),
                 ops::attention(x, x, x, packed, 2, 0, false)) < 1e-5);
  const Tensor low = x.to(at::kBFloat16);
  CHECK(distance(ops::attention(low, low, low, packed, 2, 0, false).to(at::kFloat),
                 ops::attention(x, x, x, packed, 2, 0, false)) < 0.05);
  CHECK_THROWS_AS(ops::attention(x, x, x, ops::KeyMask::packed({3, 7}), 2, 0, false), c10::Error);
  CHECK_THROWS_AS(ops::KeyMask::packed({}), c10::Error);
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

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The share of the processor time of `work` that threads other than this one used.
template <class Work>
double share_of_other_threads(Work work) {
  const double all = seconds_of(CLOCK_PROCESS_CPUTIME_ID),
               own = seconds_of(CLOCK_THREAD_CPUTIME_ID);
  work();
  const double of_all = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - all;
  return 1 - (seconds_of(CLOCK_THREAD_CPUTIME_ID) - own) / of_all;
}

// The results and gradients of every operator that divides its rows among threads, on tensors that
// are large enough for it.
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
      const double before = seconds_of(CLOCK_MONOTONIC);
      ops::linear(x, w, {}).sum().backward();
      least = std::min(least, 1e3 * (seconds_of(CLOCK_MONOTONIC) - before));
    }
    return least;
  };
  const Tensor strided = whole.select(1, 0), dense = strided.contiguous();
  CHECK(distance(ops::linear(strided, w, {}), ops::linear(dense, w, {})) < 1e-3);
  CHECK(milliseconds(strided) < 10 * milliseconds(dense) + 1);
}

}  // namespace ops_ops_test
