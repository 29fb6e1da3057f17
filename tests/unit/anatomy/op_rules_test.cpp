// The arithmetic of single operators equals the arithmetic of loops that count their own
// operations. Bytes are counted, too, and unknown operators are reported as not counted.
#include "anatomy/op_rules.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "hasten/accelerator.h"
#include "hasten/anatomy/anatomy.h"
#include "hasten/anatomy/dry_run.h"

namespace anatomy_op_rules_test {

using namespace hasten;
using anatomy::OperationGroup;
using anatomy::OperationTotal;
using anatomy::Phase;
using anatomy::Report;

namespace {

// A number that counts the arithmetic done with it.
struct CountedNumber {
  static inline double operations = 0;
  double value = 0;
  friend CountedNumber operator+(CountedNumber a, CountedNumber b) {
    return count(a.value + b.value);
  }
  friend CountedNumber operator-(CountedNumber a, CountedNumber b) {
    return count(a.value - b.value);
  }
  friend CountedNumber operator*(CountedNumber a, CountedNumber b) {
    return count(a.value * b.value);
  }
  friend CountedNumber operator/(CountedNumber a, CountedNumber b) {
    return count(a.value / b.value);
  }
  static CountedNumber count(double value) {
    ++operations;
    return {value};
  }
};
CountedNumber exp(CountedNumber x) { return CountedNumber::count(std::exp(x.value)); }
CountedNumber log(CountedNumber x) { return CountedNumber::count(std::log(x.value)); }
CountedNumber sqrt(CountedNumber x) { return CountedNumber::count(std::sqrt(x.value)); }
CountedNumber larger(CountedNumber a, CountedNumber b) {
  return CountedNumber::count(std::max(a.value, b.value));
}

// Returns the operations for one element, from one run of a loop's body.
template <class Body>
double operations_of(Body body) {
  CountedNumber::operations = 0;
  body();
  return CountedNumber::operations;
}

Report record_call(const std::function<void()>& run) {
  Anatomy anatomy;
  {
    const PhaseScope phase = anatomy.forward();
    run();
  }
  return anatomy.report();
}

OperationTotal total_named(const Report& report, const std::string& name) {
  OperationTotal total;
  for (const auto& each : report.operations) {
    if (each.name == name) total += each;
  }
  return total;
}

OperationTotal call_named(const std::string& name, const std::function<void()>& run) {
  const Report report = record_call(run);
  const OperationTotal total = total_named(report, name);
  CHECK_MESSAGE(total.count == 1, name);
  CHECK_MESSAGE(std::count(report.without_formula.begin(), report.without_formula.end(), name) == 0,
                name);
  return total;
}

bool is_not_counted(const Report& report, const std::string& name) {
  return std::count(report.without_formula.begin(), report.without_formula.end(), name) == 1;
}

double all_flops(const Report& report) {
  double flops = 0;
  for (const auto& each : report.operations) flops += each.flops;
  return flops;
}

}  // namespace

TEST_CASE("op rules: norms take as many operations as a loop, in training and without it") {
  const torch::NoGradGuard no_grad;
  const at::Tensor x = at::rand({4, 6, 10}), weight = at::ones({10}), channel = at::ones({6});
  const auto numbers = static_cast<double>(x.numel());
  const CountedNumber v{2}, w{3};
  const double statistics = operations_of([&] {
    CountedNumber mean = v + v,
                  square = (v - mean) * (v - mean);  // the difference is computed once
    CountedNumber::operations -= 1;
    (void)(square + square);
  });
  const double normalized = operations_of([&] { (void)((v - w) * w); });
  CHECK(statistics == 4);
  CHECK(normalized == 2);
  CHECK(call_named("aten::native_layer_norm", [&] {
          at::native_layer_norm(x, {10}, weight, weight, 1e-5);
        }).flops == (statistics + normalized + 2) * numbers);
  CHECK(call_named("aten::native_layer_norm", [&] {
          at::native_layer_norm(x, {10}, {}, {}, 1e-5);
        }).flops == (statistics + normalized) * numbers);
  CHECK(call_named("aten::native_group_norm", [&] {
          at::native_group_norm(x, channel, {}, 4, 6, 10, 2, 1e-5);
        }).flops == (statistics + normalized + 1) * numbers);
  const at::Tensor mean = at::zeros({6}), variance = at::ones({6});
  for (const bool training : {true, false}) {
    CAPTURE(training);
    CHECK(call_named("aten::native_batch_norm", [&] {
            at::native_batch_norm(x, channel, channel, mean, variance, training, 0.1, 1e-5);
          }).flops == (training * statistics + normalized + 2) * numbers);
  }
}

TEST_CASE("op rules: a norm's gradients are counted if they are requested") {
  const auto backward = [](bool input, bool weight) {
    const at::Tensor x = at::rand({4, 10}).requires_grad_(input),
                     w = at::ones({10}).requires_grad_(weight);
    const at::Tensor y = at::layer_norm(x, {10}, w, {});
    return call_named("aten::native_layer_norm_backward", [&] { y.sum().backward(); }).flops;
  };
  CHECK(backward(true, true) == (2 + 2 + 8) * 40);
  CHECK(backward(false, true) == (2 + 2) * 40);
  CHECK(backward(true, false) == (2 + 8) * 40);
}

TEST_CASE("op rules: reductions and losses take as many operations as a loop") {
  const torch::NoGradGuard no_grad;
  const at::Tensor x = at::rand({4, 10}) * 0.5 + 0.25, target = at::rand({4, 10});
  const CountedNumber a{0.5}, b{0.25}, one{1};
  const double of_log_sum = operations_of([&] { (void)(a + exp(a - larger(a, b))); });
  CHECK(call_named("aten::logsumexp", [&] { at::logsumexp(x, 1); }).flops == of_log_sum * 40);
  const double of_softmax = operations_of([&] { (void)(exp(a - larger(a, b)) / (a + b)); });
  CHECK(call_named("aten::_softmax", [&] { at::softmax(x, 1); }).flops == of_softmax * 40);
  CHECK(call_named("aten::var", [&] { at::var(x); }).flops == 4 * 40);
  const double of_mse = operations_of([&] { (void)(b + (a - b) * one); });
  CHECK(call_named("aten::mse_loss", [&] { at::mse_loss(x, target); }).flops == of_mse * 40);
  CHECK(call_named("aten::mse_loss", [&] { at::mse_loss(x, target, at::Reduction::None); }).flops ==
        (of_mse - 1) * 40);
  // The change of sign is also one operation.
  const double of_entropy =
      operations_of([&] { (void)(a + (one - (a * log(b) + (one - a) * log(one - b)))); });
  CHECK(call_named("aten::binary_cross_entropy", [&] {
          at::binary_cross_entropy(x, target);
        }).flops == of_entropy * 40);
}

TEST_CASE("op rules: a loss of classes reads and computes only the numbers of the targets") {
  const torch::NoGradGuard no_grad;
  const at::Tensor x = at::rand({5, 1000}), target = at::zeros({5}, at::kLong);
  const auto loss = call_named("aten::nll_loss_forward", [&] { at::nll_loss_nd(x, target); });
  CHECK(loss.flops == 2 * 5);
  CHECK(loss.bytes_read == 5 * (4 + 8));
  CHECK(loss.bytes_written == 2 * 4);  // the loss, and the sum of weights
}

TEST_CASE("op rules: pools take the numbers of their windows, which may overlap") {
  const torch::NoGradGuard no_grad;
  const at::Tensor x = at::rand({2, 3, 9, 9});
  double windows = 0;  // 3 x 3, stride 2
  for (int y = 0; y + 3 <= 9; y += 2) {
    for (int z = 0; z + 3 <= 9; z += 2) windows += 3 * 3;
  }
  CHECK(call_named("aten::max_pool2d_with_indices", [&] {
          at::max_pool2d_with_indices(x, {3}, {2});
        }).flops == 6 * windows);
  CHECK(call_named("aten::avg_pool2d", [&] {
          at::avg_pool2d(x, {3, 3}, {2, 2});
        }).flops == 6 * windows);
  double adaptive = 0;
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 2; ++j)
      adaptive += (std::ceil((i + 1) * 9 / 4.0) - std::floor(i * 9 / 4.0)) *
                  (std::ceil((j + 1) * 9 / 2.0) - std::floor(j * 9 / 2.0));
  }
  CHECK(call_named("aten::_adaptive_avg_pool2d", [&] {
          at::_adaptive_avg_pool2d(x, {4, 2});
        }).flops == 6 * adaptive);
}

TEST_CASE("op rules: the gradient of a pool is one addition for each of its results") {
  const at::Tensor x = at::rand({2, 3, 9, 9}).requires_grad_();
  const at::Tensor y = at::max_pool2d(x, {3}, {3});
  CHECK(call_named("aten::max_pool2d_with_indices_backward", [&] { y.sum().backward(); }).flops ==
        y.numel());
}

TEST_CASE("op rules: a factor in a sum counts, and a factor of one does not") {
  const torch::NoGradGuard no_grad;
  const at::Tensor x = at::rand({10}), y = at::rand({10}), out = at::rand({10});
  const auto flops = [](const std::string& name, const std::function<void()>& run) {
    return call_named(name, run).flops;
  };
  CHECK(flops("aten::add", [&] { (void)at::add(x, y); }) == 10);
  CHECK(flops("aten::add", [&] { (void)at::add(x, y, 3); }) == 20);
  CHECK(flops("aten::add_", [&] { out.add_(y, -0.1); }) == 20);
  CHECK(flops("aten::addcmul", [&] { at::addcmul(x, x, y); }) == 20);
  CHECK(flops("aten::addcdiv_", [&] { out.addcdiv_(x, y, -0.1); }) == 30);
  CHECK(flops("aten::lerp", [&] { at::lerp(x, y, 0.1); }) == 30);
  CHECK(flops("aten::_foreach_add_", [&] { at::_foreach_add_({out, x}, {y, y}, 0.5); }) == 40);
  CHECK(flops("aten::max", [&] { (void)at::max(x); }) == 10);
}

TEST_CASE("op rules: an overload that maps is counted differently from one that reduces") {
  const torch::NoGradGuard no_grad;
  const at::Tensor column = at::rand({10, 1}), row = at::rand({1, 20});
  const Report report = record_call([&] { (void)at::max(column, row); });
  CHECK(total_of(report, OperationGroup::element_wise).flops == 200);
  CHECK(total_of(report, OperationGroup::statistical_normalization).flops == 0);
}

TEST_CASE("op rules: fused optimizers compute what their options require") {
  const torch::NoGradGuard no_grad;
  const auto tensors = [] { return std::vector<at::Tensor>{at::rand({30}), at::rand({10})}; };
  const auto parameters = tensors(), gradients = tensors(), first = tensors(), second = tensors();
  const auto sgd = [&](double decay, double momentum, bool nesterov) {
    return call_named("aten::_fused_sgd_", [&] {
      at::_fused_sgd_(parameters, gradients, momentum == 0 ? std::vector<at::Tensor>() : first,
                      decay, momentum, 0.1, 0, nesterov, false, false);
    });
  };
  CountedNumber p{1}, g{2}, m{3};
  const CountedNumber f{0.5};
  CHECK(sgd(0, 0, false).flops == 40 * operations_of([&] { p = p - f * g; }));
  CHECK(sgd(0.1, 0, false).flops == 40 * operations_of([&] { p = p - f * (g + f * p); }));
  CHECK(sgd(0, 0.9, false).flops == 40 * operations_of([&] {
                                      m = f * m + f * g;
                                      p = p - f * m;
                                    }));
  CHECK(sgd(0, 0.9, true).flops == 40 * operations_of([&] {
                                     m = f * m + f * g;
                                     p = p - f * (g + f * m);
                                   }));
  // Gradients are read and not written.
  CHECK(sgd(0, 0, false).bytes_read == 2 * 160);
  CHECK(sgd(0, 0, false).bytes_written == 160);
  const std::vector<at::Tensor> steps = {at::ones({}), at::ones({})};
  const auto adamw = [&](bool amsgrad) {
    const std::vector<at::Tensor> most = amsgrad ? tensors() : std::vector<at::Tensor>();
    return call_named("aten::_fused_adamw_", [&] {
      at::_fused_adamw_(parameters, gradients, first, second, most, steps, 0.1, 0.9, 0.99, 0.01,
                        1e-8, amsgrad, false);
    });
  };
  CountedNumber v{4};
  CHECK(adamw(false).flops == 40 * operations_of([&] {
                                p = f * p;
                                m = m + f * (g - m);
                                v = f * v + f * g * g;
                                p = p - f * (m / (sqrt(v) / f + f));
                                // The factor of the step, from the rate and the first correction,
                                // is one operation.
                              }));
  CHECK(adamw(true).flops == adamw(false).flops + 40);
  CHECK(adamw(false).bytes_written == 3 * 160);
}

TEST_CASE("op rules: overwritten memory is not read, and an expanded tensor counts once") {
  const torch::NoGradGuard no_grad;
  const at::Tensor x = at::rand({100, 10}), row = at::rand({10}), out = at::rand({100, 10});
  const auto copied = call_named("aten::copy_", [&] { out.copy_(x); });
  CHECK(copied.bytes_read == 4000);
  CHECK(copied.bytes_written == 4000);
  CHECK(call_named("aten::copy_", [&] { out.copy_(row); }).bytes_read == 40);
  const auto filled = call_named("aten::fill_", [&] { out.fill_(1); });
  CHECK(filled.bytes_read == 0);
  CHECK(filled.bytes_written == 4000);
  const auto sum = call_named("aten::add", [&] { (void)at::add(x, row); });
  CHECK(sum.bytes_read == 4040);
  CHECK(sum.bytes_written == 4000);
  // The same is true for a part of a larger tensor.
  const at::Tensor part = at::rand({1000})[0].expand({100, 10});
  CHECK(call_named("aten::add", [&] { (void)at::add(x, part); }).bytes_read == 4004);
  const auto square = call_named("aten::mm", [&] { (void)at::mm(x, row.expand({10, 10})); });
  CHECK(square.bytes_read == 4040);
  CHECK(square.flops == 2 * 100 * 10 * 10);
}

TEST_CASE("op rules: a lookup reads the rows that it finds, and its index") {
  const torch::NoGradGuard no_grad;
  const at::Tensor table = at::rand({1000, 8}), ids = at::zeros({5}, at::kLong);
  for (const auto& [name, run] : std::map<std::string, std::function<void()>>{
           {"aten::embedding", [&] { at::embedding(table, ids); }},
           {"aten::index_select", [&] { at::index_select(table, 0, ids); }},
           {"aten::index", [&] { (void)table.index({ids}); }},
           {"aten::gather", [&] {
              at::gather(table, 0, ids.unsqueeze(1).expand({5, 8}));
            }}}) {
    CAPTURE(name);
    const auto found = call_named(name, run);
    CHECK(found.flops == 0);
    CHECK(found.bytes_written == 5 * 8 * 4);
    CHECK(found.bytes_read == 5 * 8 * 4 + 5 * 8);
  }
}

TEST_CASE("op rules: sums at an index add the given values, not the existing ones") {
  const torch::NoGradGuard no_grad;
  const at::Tensor table = at::zeros({1000, 8}), rows = at::rand({5, 8}),
                   ids = at::arange(5, at::kLong);
  const auto added = call_named("aten::index_add_", [&] { table.index_add_(0, ids, rows); });
  CHECK(added.flops == 40);
  CHECK(added.bytes_written == 160);
  CHECK(added.bytes_read == 160 + 160 + 40);
  CHECK(call_named("aten::index_add_", [&] { table.index_add_(0, ids, rows, 2); }).flops == 80);
  const at::Tensor places = ids.unsqueeze(1).expand({5, 8}).contiguous();
  CHECK(call_named("aten::scatter_add_", [&] { table.scatter_add_(0, places, rows); }).flops == 40);
  const auto put = [&](const at::Tensor& values, bool accumulate) {
    return call_named("aten::_index_put_impl_",
                      [&] { table.index_put_({ids}, values, accumulate); });
  };
  CHECK(put(rows, true).flops == 40);
  CHECK(put(at::ones({}), true).flops == 40);
  CHECK(put(rows, false).flops == 0);
  CHECK(put(rows, false).bytes_written == 160);
  CHECK(call_named("aten::embedding_dense_backward", [&] {
          at::embedding_dense_backward(rows, ids, 1000, -1, false);
        }).flops == 40);
}

TEST_CASE("op rules: batch normalization writes its result and its running statistics") {
  const torch::NoGradGuard no_grad;
  const at::Tensor x = at::rand({4, 6, 10}), channel = at::ones({6});
  at::Tensor mean = at::zeros({6}), variance = at::ones({6});
  const auto normalized = call_named("aten::_native_batch_norm_legit", [&] {
    at::_native_batch_norm_legit(x, channel, channel, mean, variance, true, 0.1, 1e-5);
  });
  CHECK(normalized.bytes_written >= 4 * 6 * 10 * 4);
  CHECK(normalized.flops == 8 * 4 * 6 * 10);
}

TEST_CASE("op rules: an operator without a formula is not counted, and the report says so") {
  const torch::NoGradGuard no_grad;
  const at::Tensor x = at::rand({6, 4}), y = at::rand({4, 5}), wide = at::rand({7, 4});
  const at::Tensor sparse = at::eye(6).to_sparse();
  const Report by_sparse = record_call([&] { (void)at::mm(sparse, x); });
  CHECK(is_not_counted(by_sparse, "aten::mm"));
  CHECK(total_named(by_sparse, "aten::mm").flops == 0);
  const at::Tensor ids = at::zeros({5}, at::kLong), begins = at::zeros({1}, at::kLong);
  const Report bag = record_call([&] { at::_embedding_bag(x, ids, begins); });
  CHECK(is_not_counted(bag, "aten::_embedding_bag"));
  // A separate kernel sums the differences, no matter which copies it makes first.
  const Report distance = record_call([&] { at::cdist(x, wide.t().contiguous().t(), 1.0); });
  CHECK(is_not_counted(distance, "aten::_cdist_forward"));
  // Euclidean distances can be computed with a product, which is counted.
  const Report euclidean = record_call([&] {
    at::cdist(at::rand({30, 4}), at::rand({30, 4}), 2.0, /*compute_mode=*/1);
  });
  CHECK(total_of(euclidean, OperationGroup::tensor_contraction).flops >= 2 * 30 * 4 * 30);
  // The shape of a mask does not determine its number of ones.
  at::Tensor table = at::zeros({6});
  const Report masked =
      record_call([&] { table.index_put_({at::ones({6}, at::kBool)}, at::ones({6}), true); });
  CHECK(is_not_counted(masked, "aten::_index_put_impl_"));
}

TEST_CASE("op rules: complex products count four times, and other complex arithmetic does not") {
  const torch::NoGradGuard no_grad;
  const at::Tensor a = at::rand({3, 4}, at::kComplexFloat), b = at::rand({4, 5}, at::kComplexFloat);
  // (a + bi)(c + di) takes four products and two sums, and adding two results takes two more sums.
  const CountedNumber r{1};
  const double of_one = operations_of([&] {
    (void)(r + (r * r - r * r));
    (void)(r + (r * r + r * r));
  });
  CHECK(call_named("aten::mm", [&] { (void)at::mm(a, b); }).flops == of_one * 3 * 4 * 5);
  const Report sum = record_call([&] { (void)at::mul(a, a); });
  CHECK(is_not_counted(sum, "aten::mul"));
  CHECK(all_flops(sum) == 0);
  CHECK(total_named(sum, "aten::mul").bytes_read == 2 * 3 * 4 * 8);
  CHECK(call_named("aten::copy_", [&] { at::empty_like(a).copy_(a); }).bytes_read == 3 * 4 * 8);
}

TEST_CASE("op rules: empty tensors take no operations, and every figure is finite") {
  const at::Tensor x = at::rand({0, 4, 7, 7}).requires_grad_(),
                   weight = at::rand({6, 4, 3, 3}).requires_grad_();
  const Report report = record_call([&] {
    at::conv2d(x, weight).sum().backward();
    at::conv_transpose2d(x, at::rand({4, 6, 3, 3})).sum();
    at::layer_norm(x.detach(), {7});
    at::mm(at::rand({0, 3}), at::rand({3, 0}));
    at::linear(at::rand({0, 3}), at::rand({5, 3}));
    at::softmax(at::rand({0, 3}), 1);
    at::rand({0}).add_(at::rand({0}));
  });
  CHECK(report.operations.size() > 5);
  for (const auto& each : report.operations) {
    CHECK(std::isfinite(each.flops));
    CHECK(each.flops >= 0);
    if (each.group == OperationGroup::tensor_contraction) CHECK(each.flops == 0);
  }
}

TEST_CASE("op rules: grouped queries are counted by the queries' heads") {
  const torch::NoGradGuard no_grad;
  const at::Tensor q = at::rand({2, 8, 6, 16}), k = at::rand({2, 2, 10, 16});
  const Report report = record_call([&] {
    at::scaled_dot_product_attention(q, k, k, {}, 0.0, false, std::nullopt, /*enable_gqa=*/true);
  });
  CHECK(total_of(report, OperationGroup::tensor_contraction).flops ==
        2.0 * 2 * (2 * 8) * 6 * 10 * 16);
  CHECK(report.without_formula.empty());
}

TEST_CASE("op rules: a product of 16-bit numbers counts as 16-bit arithmetic") {
  const torch::NoGradGuard no_grad;
  const at::Tensor x = at::rand({3, 4}), weight = at::rand({5, 4});
  const Report report = record_call([&] {
    at::linear(x.to(at::kBFloat16), weight.to(at::kBFloat16));
    at::linear(x, weight);
  });
  double flops = 0, half = 0;
  for (const auto& each : report.operations) {
    if (each.group != OperationGroup::tensor_contraction) continue;
    flops += each.flops;
    half += each.half_flops;
  }
  CHECK(flops == 2 * 2 * 3 * 4 * 5);
  CHECK(half == 2 * 3 * 4 * 5);
}

TEST_CASE("op rules: a recurrent layer counts the weight matrices of all directions") {
  const anatomy::OpRule* rule = anatomy::find_rule("aten::_cudnn_rnn");
  REQUIRE(rule != nullptr);
  anatomy::CallShapes call;
  const auto shape = [](std::vector<std::int64_t> sizes) {
    const std::int64_t numel =
        std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
    return anatomy::TensorShape{.sizes = std::move(sizes), .numel = numel};
  };
  call.inputs = {shape({5, 3, 7}), shape({16, 7}), shape({16, 4}), shape({16}), shape({16}),
                 shape({16, 7}),   shape({16, 4}), shape({16}),    shape({16})};
  call.first = {0, 1, 9};
  CHECK(anatomy::flops_of(*rule, call) == 2.0 * 5 * 3 * 2 * (16 * 7 + 16 * 4));
}

}  // namespace anatomy_op_rules_test
