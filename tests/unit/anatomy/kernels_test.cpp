// Tests operators that allocate memory for themselves, one at a time: prediction and measurement
// agree to the byte, at the peak and by component, on one thread and on two.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <functional>

#include "hasten/anatomy/anatomy.h"
#include "hasten/anatomy/dry_run.h"
#include "unit/anatomy/same_memory.h"

namespace anatomy_kernels_test {

using namespace hasten;

namespace {

// Creates operands and the call whose memory is measured.
struct Case {
  std::string name;
  std::function<std::vector<at::Tensor>()> operands;
  std::function<at::Tensor(const std::vector<at::Tensor>&)> run;
};

at::Tensor leaf(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  return at::ones(sizes, type).requires_grad_();
}

anatomy::Memory memory_of(const Case& each) {
  const std::vector<at::Tensor> operands = each.operands();
  Anatomy anatomy;
  at::Tensor out;
  {
    const PhaseScope phase = anatomy.forward();
    out = each.run(operands);
  }
  if (out.requires_grad()) {
    const at::Tensor gradient = at::ones_like(out);
    const PhaseScope phase = anatomy.backward();
    out.backward(gradient);
  }
  return anatomy.report().memory;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const std::string in = type == at::kFloat ? ", float" : ", bf16";
    all.push_back(
        {"flash attention" + in,
         [=] {
           return std::vector{leaf({2, 4, 300, 64}, type), leaf({2, 4, 300, 64}, type),
                              leaf({2, 4, 300, 64}, type)};
         },
         [](const auto& x) { return at::scaled_dot_product_attention(x[0], x[1], x[2]); }});
    all.push_back({"embedding" + in,
                   [=] {
                     return std::vector{leaf({1000, 64}, type), at::ones({8, 50}, at::kLong)};
                   },
                   [](const auto& x) { return at::embedding(x[0], x[1]); }});
    all.push_back(
        {"linear" + in,
         [=] {
           return std::vector{leaf({96, 200}, type), leaf({300, 200}, type), leaf({300}, type)};
         },
         [](const auto& x) { return at::linear(x[0], x[1], x[2]); }});
    all.push_back({"batched product" + in,
                   [=] {
                     return std::vector{leaf({6, 40, 70}, type), leaf({6, 70, 50}, type)};
                   },
                   [](const auto& x) { return at::bmm(x[0], x[1]); }});
    all.push_back({"convolution" + in,
                   [=] {
                     return std::vector{leaf({4, 8, 30, 30}, type), leaf({16, 8, 3, 3}, type)};
                   },
                   [](const auto& x) { return at::conv2d(x[0], x[1], {}, 1, 1); }});
    all.push_back({"convolution with stride and bias" + in,
                   [=] {
                     return std::vector{leaf({2, 8, 31, 31}, type), leaf({16, 8, 3, 3}, type),
                                        leaf({16}, type)};
                   },
                   [](const auto& x) { return at::conv2d(x[0], x[1], x[2], 2); }});
    all.push_back({"grouped convolution" + in,
                   [=] {
                     return std::vector{leaf({2, 8, 20, 20}, type), leaf({16, 2, 3, 3}, type)};
                   },
                   [](const auto& x) { return at::conv2d(x[0], x[1], {}, 1, 1, 1, 4); }});
    all.push_back({"layer norm" + in,
                   [=] {
                     return std::vector{leaf({70, 96}, type), leaf({96}, type), leaf({96}, type)};
                   },
                   [](const auto& x) { return at::layer_norm(x[0], {96}, x[1], x[2]); }});
    all.push_back({"batch norm" + in,
                   [=] {
                     return std::vector{leaf({4, 16, 20, 20}, type), leaf({16}), leaf({16}),
                                        at::zeros({16}), at::ones({16})};
                   },
                   [](const auto& x) {
                     return at::batch_norm(x[0], x[1], x[2], x[3], x[4], true, 0.1, 1e-5, false);
                   }});
    all.push_back(
        {"group norm" + in,
         [=] {
           return std::vector{leaf({4, 16, 20, 20}, type), leaf({16}, type), leaf({16}, type)};
         },
         [](const auto& x) { return at::group_norm(x[0], 4, x[1], x[2]); }});
    // These operands are so large that a dry run calls the kernel with fewer rows.
    all.push_back(
        {"large flash attention" + in,
         [=] {
           return std::vector{leaf({70, 4, 256, 64}, type), leaf({70, 4, 256, 64}, type),
                              leaf({70, 4, 256, 64}, type)};
         },
         [](const auto& x) { return at::scaled_dot_product_attention(x[0], x[1], x[2]); }});
    all.push_back(
        {"large layer norm" + in,
         [=] {
           return std::vector{leaf({9000, 512}, type), leaf({512}, type), leaf({512}, type)};
         },
         [](const auto& x) { return at::layer_norm(x[0], {512}, x[1], x[2]); }});
    all.push_back({"large table" + in,
                   [=] {
                     return std::vector{leaf({20000, 256}, type), at::ones({8, 50}, at::kLong)};
                   },
                   [](const auto& x) { return at::embedding(x[0], x[1]); }});
    all.push_back({"large mean" + in,
                   [=] {
                     return std::vector{leaf({9000, 512}, type)};
                   },
                   [](const auto& x) { return x[0].mean(-1); }});
    all.push_back({"softmax" + in,
                   [=] {
                     return std::vector{leaf({50, 300}, type)};
                   },
                   [](const auto& x) { return at::softmax(x[0], -1); }});
    all.push_back({"sums" + in,
                   [=] {
                     return std::vector{leaf({50, 300}, type)};
                   },
                   [](const auto& x) { return x[0].sum(0).mean(); }});
    all.push_back({"sort" + in,
                   [=] {
                     return std::vector{leaf({20, 500}, type)};
                   },
                   [](const auto& x) { return std::get<0>(x[0].sort(1)); }});
    all.push_back({"sort along rows" + in,
                   [=] {
                     return std::vector{leaf({500, 20}, type)};
                   },
                   [](const auto& x) { return std::get<0>(x[0].sort(0)); }});
    all.push_back({"topk" + in,
                   [=] {
                     return std::vector{leaf({20, 500}, type)};
                   },
                   [](const auto& x) { return std::get<0>(x[0].topk(5)); }});
    all.push_back({"cumsum" + in,
                   [=] {
                     return std::vector{leaf({20, 500}, type)};
                   },
                   [](const auto& x) { return x[0].cumsum(1); }});
    all.push_back({"index" + in,
                   [=] {
                     return std::vector{leaf({200, 30}, type), at::zeros({90}, at::kLong)};
                   },
                   [](const auto& x) { return at::index(x[0], {x[1]}); }});
    all.push_back(
        {"index_put, added up" + in,
         [=] {
           return std::vector{at::zeros({200, 30}, type), at::zeros({90}, at::kLong),
                              leaf({90, 30}, type)};
         },
         [](const auto& x) { return at::index_put(x[0], {x[1]}, x[2], /*accumulate=*/true); }});
    all.push_back({"index_select" + in,
                   [=] {
                     return std::vector{leaf({200, 30}, type), at::zeros({90}, at::kLong)};
                   },
                   [](const auto& x) { return x[0].index_select(0, x[1]); }});
    all.push_back({"gather" + in,
                   [=] {
                     return std::vector{leaf({20, 30}, type), at::zeros({20, 9}, at::kLong)};
                   },
                   [](const auto& x) { return x[0].gather(1, x[1]); }});
    all.push_back({"pooling" + in,
                   [=] {
                     return std::vector{leaf({4, 8, 30, 30}, type)};
                   },
                   [](const auto& x) {
                     return at::avg_pool2d(at::max_pool2d(x[0], {2, 2}), {3, 3});
                   }});
    all.push_back({"upsampling" + in,
                   [=] {
                     return std::vector{leaf({2, 8, 10, 10}, type)};
                   },
                   [](const auto& x) {
                     return at::upsample_bilinear2d(x[0], at::IntArrayRef({20, 20}), false);
                   }});
    all.push_back(
        {"activations" + in,
         [=] {
           return std::vector{leaf({50, 300}, type)};
         },
         [](const auto& x) { return at::mish(at::hardswish(at::elu(at::silu(at::gelu(x[0]))))); }});
  }
  all.push_back({"large layer norm with as many rows as columns",
                 [] {
                   return std::vector{leaf({2050, 2050}), leaf({2050}), leaf({2050})};
                 },
                 [](const auto& x) { return at::layer_norm(x[0], {2050}, x[1], x[2]); }});
  all.push_back({"large layer norm over all dimensions",
                 [] {
                   return std::vector{leaf({2050, 2050}), leaf({2050, 2050}), leaf({2050, 2050})};
                 },
                 [](const auto& x) {
                   return at::layer_norm(x[0], {2050, 2050}, x[1], x[2]);
                 }});
  all.push_back({"statistics",
                 [] {
                   return std::vector{leaf({50, 300})};
                 },
                 [](const auto& x) {
                   return x[0].var(1) + x[0].std(1) + x[0].logsumexp(1) + x[0].norm(2, 1) +
                          std::get<0>(x[0].max(1)) + x[0].amax(1);
                 }});
  all.push_back({"losses",
                 [] {
                   return std::vector{leaf({40, 30}), at::zeros({40, 30})};
                 },
                 [](const auto& x) {
                   return at::mse_loss(x[0], x[1]) + at::l1_loss(x[0], x[1]) +
                          at::binary_cross_entropy_with_logits(x[0], x[1]) +
                          at::kl_div(x[0], x[1]) + at::smooth_l1_loss(x[0], x[1]);
                 }});
  all.push_back({"shapes",
                 [] {
                   return std::vector{leaf({40, 30}), leaf({40, 30})};
                 },
                 [](const auto& x) {
                   const at::Tensor both = at::cat({x[0], x[1]}, 1);
                   return at::constant_pad_nd(at::stack(both.split(15, 1)).roll(1, 0).flip(1),
                                              {1, 1})
                       .repeat({2, 1, 1})
                       .tril();
                 }});
  all.push_back({"choices",
                 [] {
                   return std::vector{leaf({40, 30}), leaf({40, 30})};
                 },
                 [](const auto& x) {
                   return at::where(x[0] > x[1], x[0], x[1]).clamp(0, 1).masked_fill(x[0] > 2, 0) +
                          at::maximum(x[0], x[1]);
                 }});
  all.push_back({"products over dimensions",
                 [] {
                   return std::vector{leaf({4, 20, 30}), leaf({30, 10}), leaf({4, 1, 20})};
                 },
                 [](const auto& x) {
                   return at::einsum("bij,jk->bik", {x[0], x[1]}) + at::matmul(x[2], x[0]).sum();
                 }});
  all.push_back({"attention with a mask and dropout",
                 [] {
                   return std::vector{leaf({2, 4, 40, 16}), leaf({2, 4, 40, 16}),
                                      leaf({2, 4, 40, 16}), at::ones({2, 1, 40, 40}, at::kBool)};
                 },
                 [](const auto& x) {
                   return at::scaled_dot_product_attention(x[0], x[1], x[2], x[3], 0.1);
                 }});
  all.push_back({"transposed convolution",
                 [] {
                   return std::vector{leaf({4, 8, 15, 15}), leaf({8, 16, 3, 3})};
                 },
                 [](const auto& x) { return at::conv_transpose2d(x[0], x[1]); }});
  all.push_back({"convolution of sequences",
                 [] {
                   return std::vector{leaf({4, 8, 100}), leaf({16, 8, 5})};
                 },
                 [](const auto& x) { return at::conv1d(x[0], x[1]); }});
  all.push_back(
      {"sums in another type",
       [] {
         return std::vector{leaf({500, 300}, at::kBFloat16)};
       },
       [](const auto& x) { return x[0].sum({1}, false, at::kFloat) + x[0].sum(at::kFloat); }});
  all.push_back({"large sum in another type",
                 [] {
                   return std::vector{at::ones({9000, 512})};
                 },
                 [](const auto& x) { return x[0].sum(at::kDouble); }});
  all.push_back({"integers, summed",
                 [] {
                   return std::vector{at::ones({50, 300}, at::kInt)};
                 },
                 [](const auto& x) { return x[0].sum(); }});
  all.push_back({"cross entropy",
                 [] {
                   return std::vector{leaf({40, 30}), at::zeros({40}, at::kLong)};
                 },
                 [](const auto& x) { return at::cross_entropy_loss(x[0], x[1]); }});
  all.push_back({"LSTM",
                 [] {
                   return std::vector{
                       leaf({6, 4, 16}), at::zeros({1, 4, 32}), at::zeros({1, 4, 32}),
                       leaf({128, 16}),  leaf({128, 32}),       leaf({128}),
                       leaf({128})};
                 },
                 [](const auto& x) {
                   return std::get<0>(at::lstm(x[0], {x[1], x[2]}, {x[3], x[4], x[5], x[6]}, true,
                                               1, 0.0, true, false, false));
                 }});
  all.push_back({"GRU",
                 [] {
                   return std::vector{leaf({6, 4, 16}), at::zeros({1, 4, 32}),
                                      leaf({96, 16}),   leaf({96, 32}),
                                      leaf({96}),       leaf({96})};
                 },
                 [](const auto& x) {
                   return std::get<0>(at::gru(x[0], x[1], {x[2], x[3], x[4], x[5]}, true, 1, 0.0,
                                              true, false, false));
                 }});
  // An element-wise operation casts each operand that does not have the common type.
  const auto operands = [](at::ScalarType first, at::ScalarType second) {
    return [=] {
      return std::vector{leaf({30, 40}, first),
                         at::isFloatingType(second) ? leaf({40}, second) : at::ones({40}, second)};
    };
  };
  const auto of_types = [&](const std::string& types, at::ScalarType first, at::ScalarType second) {
    const auto both = operands(first, second);
    const auto add = [&](const std::string& name, auto run) {
      all.push_back({name + types, both, run});
    };
    add("sum of ", [](const auto& x) { return x[0] + x[1]; });
    add("product of ", [](const auto& x) { return x[0] * x[1]; });
    add("quotient of ", [](const auto& x) { return x[0] / x[1]; });
    add("comparison of ", [](const auto& x) { return x[0] > x[1]; });
    add("choice between ", [](const auto& x) { return at::where(x[1] > 0, x[0], x[1]); });
    add("logical and of ", [](const auto& x) { return at::logical_and(x[0], x[1]); });
    add("addcmul of ", [](const auto& x) { return at::addcmul(x[0].detach(), x[0], x[1]); });
    add("sum in place of ",
        [](const auto& x) { return x[0].detach().clone().add_(x[1].detach()); });
  };
  of_types("bf16 and float", at::kBFloat16, at::kFloat);
  of_types("float and bf16", at::kFloat, at::kBFloat16);
  of_types("float and float", at::kFloat, at::kFloat);
  of_types("float and integers", at::kFloat, at::kLong);
  of_types("bf16 and booleans", at::kBFloat16, at::kBool);
  all.push_back({"a number added to bf16",
                 [] {
                   return std::vector{leaf({30, 40}, at::kBFloat16)};
                 },
                 [](const auto& x) { return x[0] + 0.5; }});
  all.push_back({"a number compared",
                 [] {
                   return std::vector{leaf({30, 40})};
                 },
                 [](const auto& x) { return x[0] > 0.5; }});
  all.push_back({"root of integers",
                 [] {
                   return std::vector{at::ones({30, 40}, at::kLong)};
                 },
                 [](const auto& x) { return x[0].sqrt(); }});
  all.push_back({"integers divided",
                 [] {
                   return std::vector{at::ones({30, 40}, at::kLong)};
                 },
                 [](const auto& x) { return x[0] / 3; }});
  all.push_back({"masked fill",
                 [] {
                   return std::vector{leaf({30, 40}, at::kBFloat16), at::ones({40}, at::kBool)};
                 },
                 [](const auto& x) { return x[0].masked_fill(x[1], -1.0); }});
  return all;
}

}  // namespace

TEST_CASE("kernels: memory that an operator allocates for itself is predicted to the byte") {
  const int threads = at::get_num_threads();
  int inside = 0;
  for (const Case& each : cases()) {
    for (const int number : {1, 2}) {
      at::set_num_threads(number);
      CAPTURE(each.name);
      CAPTURE(number);
      const anatomy::Memory measured = memory_of(each);
      anatomy::Memory predicted;
      {
        const DryRun dry;
        predicted = memory_of(each);
      }
      CAPTURE(measured.peak_operation);
      CAPTURE(predicted.peak_operation);
      check_same_memory(predicted, measured);
      inside += measured.peak_inside_kernel;
    }
  }
  at::set_num_threads(threads);
  MESSAGE("peaks inside a kernel: ", inside);
  CHECK(inside >= 10);
}

}  // namespace anatomy_kernels_test
