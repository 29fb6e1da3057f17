// A dry run computes shapes, keeps no memory, and reports code that depends on values.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include "anatomy/call_collector.h"
#include "anatomy/dry_tensor.h"
#include "hasten/accelerator.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/base/text.h"
#include "hasten/ops/ops.h"
#include "hasten/optim/adamw.h"
#include "hasten/trainer/estimate.h"
#include "processor_time.h"
#include "slowdown.h"
#include "unit/anatomy/same_memory.h"
#include "unit/code_of.h"

namespace anatomy_dry_run_test {

using namespace hasten;
using anatomy::Component;

TEST_CASE("dry run: calls that differ in their random seed are one collected call") {
  const DryRun dry;
  anatomy::CallCollector calls;
  calls.set_counting(true);
  const at::Tensor x = at::ones({4, 8}), bias = at::ones({8});
  for (int i = 0; i < 3; ++i) ops::dropout_add_norm(x, bias, x, bias, bias, 1e-12, 0.5, true);
  std::int64_t found = 0;
  for (const auto& [signature, call] : calls.calls()) {
    if (call.op.schema().name() != "hasten::dropout_add_norm") continue;
    ++found;
    CHECK(call.count == 3);
  }
  CHECK(found == 1);
}

TEST_CASE("dry run: tensors have shapes, and nothing is computed or kept") {
  const DryRun dry;
  CHECK(DryRun::active());
  const at::Tensor a = at::randn({1 << 15, 1 << 15}), b = a.matmul(a.t()) + 1;  // 4 GiB each
  CHECK(b.sizes() == at::IntArrayRef({1 << 15, 1 << 15}));
  CHECK(b.sum().item<float>() == 1.0f);  // a placeholder
  CHECK(a[5].view({-1, 2}).size(0) == 1 << 14);
  CHECK(at::cat({a, b}).size(0) == 1 << 16);
}

TEST_CASE("dry run: where takes numbers in place of tensors") {
  const auto results = [] {
    const at::Tensor x = at::randn({3, 1}), mask = x.gt(0).expand({3, 2});
    return std::vector<at::Tensor>{at::where(mask, x, 0), at::where(mask, 0.5, x),
                                   at::where(mask, 1, 0)};
  };
  const std::vector<at::Tensor> real = results();
  const DryRun dry;
  const std::vector<at::Tensor> predicted = results();
  for (std::size_t i = 0; i < real.size(); ++i) {
    CAPTURE(i);
    CHECK(predicted[i].sizes() == real[i].sizes());
    CHECK((predicted[i].scalar_type() == real[i].scalar_type()));
  }
}

TEST_CASE("dry run: products have the shapes and types of LibTorch's") {
  const DryRun dry;
  const at::Tensor x = at::ones({8, 5});
  CHECK(x.prod(1).sizes() == at::IntArrayRef({8}));
  CHECK(x.prod(1, /*keepdim=*/true).sizes() == at::IntArrayRef({8, 1}));
  CHECK(x.prod().dim() == 0);
  CHECK((x.prod().scalar_type() == at::kFloat));
  CHECK((x.prod(at::kDouble).scalar_type() == at::kDouble));
  CHECK((at::ones({3000}, at::kInt).prod().scalar_type() == at::kLong));
  CHECK((at::ones({3000}, at::kInt).prod(0).scalar_type() == at::kLong));
}

TEST_CASE("dry run: the statistics and gradients of a batch norm have the types of LibTorch's") {
  const auto types = [](at::ScalarType type) {
    const at::Tensor x = at::ones({4, 8, 5, 5}, at::kBFloat16), weight = at::ones({8}, type);
    const auto [y, mean, deviation] =
        at::native_batch_norm(x, weight, weight, {}, {}, /*training=*/true, 0.1, 1e-5);
    const auto [dx, dweight, dbias] = at::native_batch_norm_backward(
        y, x, weight, {}, {}, mean, deviation, /*train=*/true, 1e-5, {true, true, true});
    return std::vector{mean.scalar_type(), deviation.scalar_type(), dx.scalar_type(),
                       dweight.scalar_type(), dbias.scalar_type()};
  };
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    CAPTURE(type);
    const std::vector<at::ScalarType> real = types(type);
    const DryRun dry;
    CHECK((types(type) == real));
  }
}

TEST_CASE("dry run: memory written by pointer is kept") {
  const DryRun dry;
  const at::Tensor x = at::tensor({1.0f, 2.0f, 3.0f});
  CHECK(x.const_data_ptr<float>()[2] == 3.0f);
}

TEST_CASE("dry run: an allocation larger than the address space is refused") {
  CHECK(code_of([] { (void)anatomy::dry_memory(std::int64_t{1} << 43, at::kCPU); }) ==
        "anatomy.no-addresses");
}

TEST_CASE("dry run: it ends with its scope") {
  { const DryRun dry; }
  CHECK_FALSE(DryRun::active());
  CHECK(at::ones({2}).sum().item<float>() == 2.0f);
}

TEST_CASE("dry run: the error for results whose size depends on values names the operator") {
  const DryRun dry;
  CHECK(code_of([] { at::nonzero(at::ones({3})); }) == "anatomy.data-dependent");
  CHECK(code_of([] { at::masked_select(at::ones({3}), at::ones({3}, at::kBool)); }) ==
        "anatomy.data-dependent");
}

TEST_CASE("dry run: the error names the operator and the module that called it") {
  struct SelectingModule : torch::nn::Module {
    SelectingModule() : dense(register_module("dense", torch::nn::Linear(4, 4))) {}
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor y = dense(x);
      return y.masked_select(y > 0).sum();
    }
    torch::nn::Linear dense;
  };
  const DryRun dry;
  Accelerator accelerator({.cpu = true});
  auto [model] = accelerator.prepare(std::make_shared<SelectingModule>());
  const auto anatomy = accelerator.anatomy();
  try {
    model(at::ones({2, 4}));
    FAIL("not refused");
  } catch (const UsageError& error) {
    CHECK(std::string(error.what()).find("aten::masked_select in dense") != std::string::npos);
  }
}

TEST_CASE("dry run: a program that reads values continues, and the report says where it read") {
  struct ReadingModule : torch::nn::Module {
    ReadingModule() : dense(register_module("dense", torch::nn::Linear(4, 4))) {}
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor y = dense(x);
      return y.sum().item<float>() > 0 ? y.sum() : y.mean();
    }
    torch::nn::Linear dense;
  };
  const DryRun dry;
  Accelerator accelerator({.cpu = true});
  auto [model] = accelerator.prepare(std::make_shared<ReadingModule>());
  auto anatomy = accelerator.anatomy();
  accelerator.backward(model(at::ones({2, 4})));
  const anatomy::Report report = anatomy.report();
  REQUIRE(report.notes.size() == 1);
  CHECK(report.notes[0].find("1 in forward of dense") != std::string::npos);
}

TEST_CASE("dry run: BERT's products follow the closed formula, and backward takes twice as many") {
  constexpr double kRows = 2, kLength = 128, kLayers = 12, kHidden = 768, kInner = 3072,
                   kLabels = 2;
  const anatomy::Report report =
      estimate({.model = "bert-base",
                .length = static_cast<std::int64_t>(kLength),
                .steps = 1,
                .arguments = {.per_device_train_batch_size = static_cast<std::int64_t>(kRows)}});
  const double tokens = kRows * kLength;
  const double formula = kLayers * (2 * tokens * (4 * kHidden * kHidden + 2 * kHidden * kInner) +
                                    4 * kRows * kLength * kLength * kHidden) +
                         2 * kRows * kHidden * kHidden + 2 * kRows * kHidden * kLabels;
  double forward = 0, backward = 0;
  for (const anatomy::Operation& each : report.operations) {
    if (each.group != anatomy::OperationGroup::tensor_contraction) continue;
    if (each.phase == anatomy::Phase::forward) forward += each.flops;
    if (each.phase == anatomy::Phase::backward) backward += each.flops;
  }
  CHECK(std::abs(forward / formula - 1) < 0.005);
  CHECK(backward / forward == doctest::Approx(2.0).epsilon(0.05));
  CHECK(report.without_formula.empty());
}

namespace {

// A decoder with the parts of large decoders: root-mean-square norms, grouped heads for keys and
// values, rotated positions, and a gated inner layer.
struct LargeDecoder : torch::nn::Module {
  static constexpr std::int64_t kLayers = 80, kWidth = 8192, kInner = 28672, kHeads = 64,
                                kSharedHeads = 8, kSize = kWidth / kHeads, kVocabulary = 128256;
  struct Layer : torch::nn::Module {
    Layer() {
      const auto dense = [&](const char* name, std::int64_t in, std::int64_t out) {
        return register_module(name,
                               torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false)));
      };
      q = dense("q_proj", kWidth, kWidth);
      k = dense("k_proj", kWidth, kSharedHeads * kSize);
      v = dense("v_proj", kWidth, kSharedHeads * kSize);
      o = dense("o_proj", kWidth, kWidth);
      gate = dense("gate_proj", kWidth, kInner);
      up = dense("up_proj", kWidth, kInner);
      down = dense("down_proj", kInner, kWidth);
      before = register_parameter("input_layernorm", at::ones({kWidth}));
      after = register_parameter("post_attention_layernorm", at::ones({kWidth}));
    }
    static at::Tensor norm(const at::Tensor& x, const at::Tensor& weight) {
      return x * at::rsqrt(x.square().mean(-1, true) + 1e-5) * weight;
    }
    static at::Tensor rotated(const at::Tensor& x, const at::Tensor& cosine,
                              const at::Tensor& sine) {
      const auto halves = x.chunk(2, -1);
      return x * cosine + at::cat({-halves[1], halves[0]}, -1) * sine;
    }
    at::Tensor forward(at::Tensor x, const at::Tensor& cosine, const at::Tensor& sine) {
      const std::int64_t rows = x.size(0), length = x.size(1);
      const auto heads = [&](const at::Tensor& y) {
        return y.view({rows, length, -1, kSize}).transpose(1, 2);
      };
      const at::Tensor y = norm(x, before);
      const at::Tensor seen = at::scaled_dot_product_attention(
          rotated(heads(q(y)), cosine, sine),
          rotated(heads(k(y)), cosine, sine).repeat_interleave(kHeads / kSharedHeads, 1),
          heads(v(y)).repeat_interleave(kHeads / kSharedHeads, 1), {}, 0.0, /*is_causal=*/true);
      x = x + o(seen.transpose(1, 2).reshape({rows, length, kWidth}));
      const at::Tensor z = norm(x, after);
      return x + down(at::silu(gate(z)) * up(z));
    }
    torch::nn::Linear q{nullptr}, k{nullptr}, v{nullptr}, o{nullptr}, gate{nullptr}, up{nullptr},
        down{nullptr};
    at::Tensor before, after;
  };

  LargeDecoder()
      : words(register_module("embed_tokens", torch::nn::Embedding(kVocabulary, kWidth))),
        layers(register_module("layers", torch::nn::ModuleList())),
        head(register_module(
            "lm_head",
            torch::nn::Linear(torch::nn::LinearOptions(kWidth, kVocabulary).bias(false)))) {
    for (std::int64_t i = 0; i < kLayers; ++i) layers->push_back(std::make_shared<Layer>());
  }
  at::Tensor forward(const at::Tensor& ids) {
    const at::Tensor angles =
        at::outer(at::arange(ids.size(1), at::kFloat), at::ones({kSize / 2})).repeat({1, 2});
    const at::Tensor cosine = angles.cos().to(ids.device()), sine = angles.sin().to(ids.device());
    at::Tensor x = words(ids);
    for (const auto& layer : *layers) x = layer->as<Layer>()->forward(x, cosine, sine);
    return at::cross_entropy_loss(head(x).view({-1, kVocabulary}), ids.view(-1));
  }
  torch::nn::Embedding words;
  torch::nn::ModuleList layers;
  torch::nn::Linear head;
};

}  // namespace

TEST_CASE("dry run: a step of a decoder of 70 billion parameters takes seconds and no memory") {
  const double began = processor_seconds();
  const DryRun dry;
  Accelerator accelerator({.cpu = true});
  auto net = std::make_shared<LargeDecoder>();
  auto [model, optimizer] = accelerator.prepare(net, std::make_shared<AdamW>(net->parameters()));
  auto anatomy = accelerator.anatomy({.steps = 1});
  const at::Tensor ids = at::ones({1, 512}, at::kLong);
  anatomy.watch_batch({ids});
  accelerator.backward(model(ids));
  optimizer.step();
  const anatomy::Report report = anatomy.report();
  CHECK(report.memory.parameters > 70'000'000'000);
  CHECK(bytes_of(report.memory.at_peak, Component::model_weights) == 4 * report.memory.parameters);
  CHECK(bytes_of(report.memory.at_peak, Component::unknown) * 1000 <= report.memory.peak);
  CHECK(report.without_formula.empty());
  const double seconds = processor_seconds() - began;
  MESSAGE("seconds: ", seconds);
  CHECK(seconds < 5 * kSlowdown);
}

}  // namespace anatomy_dry_run_test
