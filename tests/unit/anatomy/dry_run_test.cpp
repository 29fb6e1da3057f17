// A dry run against the real one: the same ledger, to the byte.
#include "hasten/anatomy/dry_run.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/trainer/estimate.h"
#include "unit/code_of.h"

using namespace hasten;
using anatomy::Component;

TEST_CASE("dry run: tensors have shapes, and nothing is computed or kept") {
  const DryRun dry;
  CHECK(DryRun::active());
  const at::Tensor a = at::randn({1 << 15, 1 << 15}), b = a.matmul(a.t()) + 1;  // 4 GiB each
  CHECK(b.sizes() == at::IntArrayRef({1 << 15, 1 << 15}));
  CHECK(b.sum().item<float>() == 1.0f);  // a stand-in
  CHECK(a[5].view({-1, 2}).size(0) == 1 << 14);
  CHECK(at::cat({a, b}).size(0) == 1 << 16);
}

TEST_CASE("dry run: memory written by pointer is kept") {
  const DryRun dry;
  const at::Tensor x = at::tensor({1.0f, 2.0f, 3.0f});
  CHECK(x.const_data_ptr<float>()[2] == 3.0f);
}

TEST_CASE("dry run: it ends with its scope") {
  { const DryRun dry; }
  CHECK_FALSE(DryRun::active());
  CHECK(at::ones({2}).sum().item<float>() == 2.0f);
}

TEST_CASE("dry run: results whose size depends on values are refused by name") {
  const DryRun dry;
  CHECK(code_of([] { at::nonzero(at::ones({3})); }) == "anatomy.data-dependent");
  CHECK(code_of([] { at::masked_select(at::ones({3}), at::ones({3}, at::kBool)); }) ==
        "anatomy.data-dependent");
}

TEST_CASE("dry run: what is refused names the operator and the module that called it") {
  struct Choosy : torch::nn::Module {
    Choosy() : dense(register_module("dense", torch::nn::Linear(4, 4))) {}
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor y = dense(x);
      return y.masked_select(y > 0).sum();
    }
    torch::nn::Linear dense;
  };
  const DryRun dry;
  Accelerator accelerator({.cpu = true});
  auto [model] = accelerator.prepare(std::make_shared<Choosy>());
  const auto anatomy = accelerator.anatomy();
  try {
    model(at::ones({2, 4}));
    FAIL("not refused");
  } catch (const UsageError& error) {
    CHECK(std::string(error.what()).find("aten::masked_select in dense") != std::string::npos);
  }
}

TEST_CASE("dry run: a program that reads values goes on, and the report says where") {
  struct Reading : torch::nn::Module {
    Reading() : dense(register_module("dense", torch::nn::Linear(4, 4))) {}
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor y = dense(x);
      return y.sum().item<float>() > 0 ? y.sum() : y.mean();
    }
    torch::nn::Linear dense;
  };
  const DryRun dry;
  Accelerator accelerator({.cpu = true});
  auto [model] = accelerator.prepare(std::make_shared<Reading>());
  auto anatomy = accelerator.anatomy();
  accelerator.backward(model(at::ones({2, 4})));
  const anatomy::Report report = anatomy.report();
  REQUIRE(report.notes.size() == 1);
  CHECK(report.notes[0].find("1 in forward of dense") != std::string::npos);
}

TEST_CASE("dry run: a prediction equals the measurement to the byte, over models and settings") {
  const TemporaryDirectory folder;
  int combinations = 0;
  const int threads = at::get_num_threads();
  for (const std::int64_t hidden : {64, 128}) {
    write_file_atomically(
        folder.path() / "config.json",
        str(R"({"model_type": "bert", "vocab_size": 500, "hidden_size": )", hidden,
            R"(, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": )",
            4 * hidden, R"(, "max_position_embeddings": 64})"));
    for (const std::int64_t batch : {1, 4}) {
      for (const std::int64_t length : {16, 48}) {
        for (const bool bf16 : {false, true}) {
          for (const OptimizerName optim : {OptimizerName::adamw_torch_fused, OptimizerName::sgd}) {
            for (const std::int64_t accumulation : {1, 3}) {
              at::set_num_threads(1 + combinations % 2);
              ++combinations;
              EstimateOptions options{
                  .model = (folder.path() / "config.json").string(),
                  .length = length,
                  .arguments = {.per_device_train_batch_size = batch,
                                .gradient_accumulation_steps = accumulation,
                                .optim = optim,
                                // Clipping depends on the norm; here it always clips.
                                .max_grad_norm = 1e-3,
                                .bf16 = bf16}};
              const anatomy::Report predicted = estimate(options);
              options.dry = false;
              const anatomy::Report measured = estimate(options);
              CAPTURE(hidden);
              CAPTURE(batch);
              CAPTURE(length);
              CAPTURE(bf16);
              CAPTURE(accumulation);
              CAPTURE(static_cast<int>(optim));
              CAPTURE(to_text(predicted));
              CAPTURE(to_text(measured));
              CHECK(predicted.dry);
              CHECK(predicted.memory.peak == measured.memory.peak);
              CHECK(predicted.memory.at_peak == measured.memory.at_peak);
              CHECK(predicted.memory.before == measured.memory.before);
              CHECK(predicted.memory.after == measured.memory.after);
              CHECK(predicted.memory.peak_in_phase == measured.memory.peak_in_phase);
              CHECK(of(measured.memory.at_peak, Component::unknown) * 1000 <= measured.memory.peak);
            }
          }
        }
      }
    }
  }
  at::set_num_threads(threads);
  CHECK(combinations >= 40);
}

TEST_CASE(
    "dry run: the products of BERT's forward pass are those of the closed formula, backward "
    "twice") {
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

TEST_CASE("dry run: a model of 59 billion parameters takes no memory of that size") {
  // As wide and deep as one: the model's own code runs, on addresses without pages.
  const TemporaryDirectory folder;
  write_file_atomically(
      folder.path() / "config.json",
      R"({"model_type": "bert", "vocab_size": 32000, "hidden_size": 8192, "num_hidden_layers": 80,
          "num_attention_heads": 64, "intermediate_size": 28672, "max_position_embeddings": 4096})");
  const anatomy::Report report = estimate({.model = (folder.path() / "config.json").string(),
                                           .length = 128,
                                           .arguments = {.per_device_train_batch_size = 1}});
  CHECK(report.memory.parameters > 55'000'000'000);
  CHECK(of(report.memory.at_peak, Component::model_weights) == 4 * report.memory.parameters);
  CHECK(of(report.memory.at_peak, Component::unknown) == 0);
}

namespace {

using torch::nn::Linear;

// Models written as any LibTorch user writes them.
struct Decoder : torch::nn::Module {
  Decoder()
      : table(register_module("table", torch::nn::Embedding(500, 64))),
        qkv(register_module("qkv", Linear(64, 192))),
        mixed(register_module("mixed", Linear(64, 64))),
        up(register_module("up", Linear(64, 256))),
        down(register_module("down", Linear(256, 64))),
        head(register_module("head", Linear(64, 500))),
        norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({64})))) {}
  at::Tensor forward(const at::Tensor& ids) {
    at::Tensor y = table(ids);
    const std::int64_t rows = ids.size(0), length = ids.size(1);
    const auto parts = qkv(y).view({rows, length, 3, 4, 16}).permute({2, 0, 3, 1, 4}).unbind(0);
    const at::Tensor seen =
        at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, true);
    y = norm(y + mixed(seen.transpose(1, 2).reshape({rows, length, 64})));
    y = norm(y + at::dropout(down(at::gelu(up(y))), 0.1, true));
    return at::cross_entropy_loss(head(y).view({-1, 500}), ids.view(-1));
  }
  torch::nn::Embedding table;
  Linear qkv, mixed, up, down, head;
  torch::nn::LayerNorm norm;
};

struct Residual : torch::nn::Module {
  Residual()
      : first(register_module("first", convolution(3))),
        second(register_module("second", convolution(16))),
        one(register_module("one", torch::nn::BatchNorm2d(16))),
        two(register_module("two", torch::nn::BatchNorm2d(16))),
        head(register_module("head", Linear(16, 10))) {}
  static torch::nn::Conv2d convolution(std::int64_t channels) {
    return torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, 16, 3).padding(1).bias(false));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = torch::relu(one(first(x)));
    y = torch::relu(y + two(second(y)));
    y = at::adaptive_avg_pool2d(at::max_pool2d(y, {2, 2}), {1, 1}).flatten(1);
    return head(y).square().mean();
  }
  torch::nn::Conv2d first, second;
  torch::nn::BatchNorm2d one, two;
  Linear head;
};

struct Recurrent : torch::nn::Module {
  Recurrent()
      : lstm(register_module("lstm",
                             torch::nn::LSTM(torch::nn::LSTMOptions(16, 32).batch_first(true)))),
        head(register_module("head", Linear(32, 4))) {}
  at::Tensor forward(const at::Tensor& x) {
    return head(std::get<0>(lstm(x)).select(1, -1)).square().mean();
  }
  torch::nn::LSTM lstm;
  Linear head;
};

template <class Model, class Input>
anatomy::Report two_steps(Input input, bool sgd) {
  torch::manual_seed(1);
  auto net = std::make_shared<Model>();
  std::shared_ptr<torch::optim::Optimizer> raw;
  if (sgd) {
    raw = std::make_shared<torch::optim::SGD>(net->parameters(),
                                              torch::optim::SGDOptions(0.1).momentum(0.9));
  } else {
    raw = std::make_shared<torch::optim::AdamW>(net->parameters());
  }
  Accelerator accelerator({.cpu = true});
  auto [model, optimizer] = accelerator.prepare(net, raw);
  auto anatomy = accelerator.anatomy({.steps = 2});
  for (int i = 0; i < 2; ++i) {
    const at::Tensor x = input();
    anatomy.watch_batch({x});
    accelerator.backward(model(x));
    optimizer.step();
    optimizer.zero_grad();
  }
  return anatomy.report();
}

template <class Model, class Input>
void check_predicted(const std::string& name, Input input) {
  const int before = at::get_num_threads();
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    for (const bool sgd : {false, true}) {
      CAPTURE(name);
      CAPTURE(threads);
      CAPTURE(sgd);
      const anatomy::Report measured = two_steps<Model>(input, sgd);
      anatomy::Report predicted;
      {
        const DryRun dry;
        predicted = two_steps<Model>(input, sgd);
      }
      CAPTURE(to_text(measured));
      CAPTURE(to_text(predicted));
      CHECK(predicted.memory.peak == measured.memory.peak);
      CHECK(predicted.memory.at_peak == measured.memory.at_peak);
      CHECK(predicted.memory.peak_in_phase == measured.memory.peak_in_phase);
      CHECK(of(measured.memory.at_peak, Component::unknown) == 0);
    }
  }
  at::set_num_threads(before);
}

}  // namespace

TEST_CASE("dry run: a decoder with flash attention is predicted to the byte") {
  check_predicted<Decoder>("decoder", [] { return at::randint(0, 500, {4, 64}); });
}

TEST_CASE("dry run: convolutions and batch norms are predicted to the byte, inside kernels too") {
  check_predicted<Residual>("residual", [] { return at::randn({4, 3, 32, 32}); });
}

TEST_CASE("dry run: an LSTM is predicted to the byte") {
  check_predicted<Recurrent>("recurrent", [] { return at::randn({4, 12, 16}); });
}
