// The prediction of a dry run equals the measurement of a real run, to the byte.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <exception>

#include "hasten/accelerator.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/ops/ops.h"
#include "hasten/optim/adamw.h"
#include "hasten/trainer/estimate.h"
#include "unit/anatomy/same_memory.h"

namespace anatomy_dry_run_prediction_test {

using namespace hasten;
using anatomy::Component;

TEST_CASE("dry run: a prediction equals the measurement to the byte") {
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
              check_same_memory(predicted.memory, measured.memory);
              CHECK(bytes_of(measured.memory.at_peak, Component::unknown) * 1000 <=
                    measured.memory.peak);
            }
          }
        }
      }
    }
  }
  at::set_num_threads(threads);
  CHECK(combinations >= 40);
}

TEST_CASE("dry run: recomputation is predicted to the byte, by component") {
  const TemporaryDirectory folder;
  write_file_atomically(
      folder.path() / "config.json",
      R"({"model_type": "bert", "vocab_size": 500, "hidden_size": 64, "num_hidden_layers": 4,
          "num_attention_heads": 2, "intermediate_size": 256, "max_position_embeddings": 64})");
  const auto activations = [](const anatomy::Memory& memory) {
    return memory.max_bytes[static_cast<std::size_t>(Component::activations)];
  };
  for (const bool bf16 : {false, true}) {
    EstimateOptions options{
        .model = (folder.path() / "config.json").string(),
        .length = 48,
        .arguments = {.per_device_train_batch_size = 8, .max_grad_norm = 1e-3, .bf16 = bf16}};
    const std::int64_t plain = activations(estimate(options).memory);
    std::int64_t full = 0;
    for (const Kwargs& kwargs :
         {Kwargs{}, Kwargs{{"every_n_layers", 2}}, Kwargs{{"policy", "selective"}},
          Kwargs{{"modules", "*.layer.[123]"}}}) {
      CAPTURE(to_text(kwargs));
      options.arguments.activation_checkpointing = true;
      options.arguments.activation_checkpointing_kwargs = kwargs;
      options.dry = true;
      const anatomy::Memory predicted = estimate(options).memory;
      options.dry = false;
      const anatomy::Memory measured = estimate(options).memory;
      check_same_memory(predicted, measured);
      CHECK(activations(predicted) == activations(measured));
      CHECK(measured.at_peak[static_cast<std::size_t>(Component::unknown)] == 0);
      CHECK(activations(measured) < plain);
      if (kwargs.empty()) full = activations(measured);
    }
    // The peak has the activations of one layer and the inputs of all four layers.
    CHECK(full < plain * 45 / 100);
    options.arguments.activation_checkpointing = false;
  }
}

TEST_CASE(
    "dry run: the operations of recomputation belong to the backward pass and to their layers") {
  EstimateOptions options{.model = "bert-base", .length = 64};
  const anatomy::Report plain = estimate(options);
  options.arguments.activation_checkpointing = true;
  const anatomy::Report full = estimate(options);
  options.arguments.activation_checkpointing_kwargs = {{"policy", "selective"}};
  const anatomy::Report selective = estimate(options);
  const auto products = [](const anatomy::Report& report, anatomy::Phase phase) {
    double flops = 0;
    for (const anatomy::Operation& row : report.operations) {
      if (row.phase == phase && row.group == anatomy::OperationGroup::tensor_contraction)
        flops += row.flops;
    }
    return flops;
  };
  const double forward = products(plain, anatomy::Phase::forward),
               backward = products(plain, anatomy::Phase::backward);
  CHECK(products(full, anatomy::Phase::forward) == forward);
  // All products of the layers run once more, but not those of the pooler and the classifier.
  const double again = products(full, anatomy::Phase::backward) - backward;
  CHECK(again / forward > 0.95);
  CHECK(again / forward <= 1);
  CHECK(products(selective, anatomy::Phase::backward) == backward);
  for (const anatomy::Report* report : {&full, &selective}) {
    double recomputed = 0;
    for (const anatomy::Operation& row : report->operations) {
      if (row.phase != anatomy::Phase::backward || row.name != "hasten::bias_gelu") continue;
      CHECK(row.module.find("encoder.layer.") != std::string::npos);
      CHECK(row.module.find("intermediate.dense") != std::string::npos);
      recomputed += static_cast<double>(row.count);
    }
    CHECK(recomputed == 2 * 12);  // two steps of twelve layers
  }
}

namespace {

using torch::nn::Linear;

// These models are written as any LibTorch user writes them.
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
anatomy::Report two_steps(Input input, bool sgd, bool bf16) {
  torch::manual_seed(1);
  auto net = std::make_shared<Model>();
  std::shared_ptr<torch::optim::Optimizer> raw;
  if (sgd) {
    raw = std::make_shared<torch::optim::SGD>(net->parameters(),
                                              torch::optim::SGDOptions(0.1).momentum(0.9));
  } else {
    raw = std::make_shared<torch::optim::AdamW>(net->parameters());
  }
  Accelerator accelerator({.mixed_precision = bf16 ? Precision::bf16 : Precision::no, .cpu = true});
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

// Autocast passes an LSTM to oneDNN in bfloat16, which has no kernel for it without AVX-512.
bool has_bf16_lstm() {
  const AutocastGuard guard(Precision::bf16, at::kCPU);
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(16, 32).batch_first(true));
  try {
    lstm(at::randn({4, 12, 16}));
    return true;
  } catch (const std::exception&) {  // oneDNN throws its own type
    return false;
  }
}

template <class Model, class Input>
void check_predicted(const std::string& name, Input input, bool in_bf16 = true) {
  const int before = at::get_num_threads();
  for (const int threads : {1, 2}) {
    at::set_num_threads(threads);
    for (const auto& [sgd, bf16] :
         {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
      if (bf16 && !in_bf16) continue;
      CAPTURE(name);
      CAPTURE(threads);
      CAPTURE(sgd);
      CAPTURE(bf16);
      const anatomy::Report measured = two_steps<Model>(input, sgd, bf16);
      anatomy::Report predicted;
      {
        const DryRun dry;
        predicted = two_steps<Model>(input, sgd, bf16);
      }
      CAPTURE(to_text(measured));
      CAPTURE(to_text(predicted));
      check_same_memory(predicted.memory, measured.memory);
      CHECK(bytes_of(measured.memory.at_peak, Component::unknown) == 0);
      CHECK(measured.without_formula.empty());
    }
  }
  at::set_num_threads(before);
}

}  // namespace

TEST_CASE("dry run: a decoder with flash attention is predicted to the byte") {
  check_predicted<Decoder>("decoder", [] { return at::randint(0, 500, {4, 64}); });
}

TEST_CASE("dry run: convolutions and batch norms are predicted, also inside kernels") {
  check_predicted<Residual>("residual", [] { return at::randn({4, 3, 32, 32}); });
}

TEST_CASE("dry run: an LSTM is predicted to the byte") {
  const bool in_bf16 = has_bf16_lstm();
  if (!in_bf16) MESSAGE("skipped in bfloat16: LibTorch has no such LSTM for this CPU");
  check_predicted<Recurrent>(
      "recurrent",
      [] {
        return at::randn({4, 12, 16});
      },
      in_bf16);
}

TEST_CASE("dry run: inference keeps nothing for a backward pass, and is predicted to the byte") {
  const TemporaryDirectory folder;
  write_file_atomically(
      folder.path() / "config.json",
      R"({"model_type": "bert", "vocab_size": 500, "hidden_size": 64, "num_hidden_layers": 2,
          "num_attention_heads": 2, "intermediate_size": 256, "max_position_embeddings": 64})");
  for (const bool bf16 : {false, true}) {
    CAPTURE(bf16);
    EstimateOptions options{.model = (folder.path() / "config.json").string(),
                            .length = 48,
                            .mode = EstimateMode::inference,
                            .arguments = {.per_device_train_batch_size = 4, .bf16 = bf16}};
    const anatomy::Memory predicted = estimate(options).memory;
    options.dry = false;
    const anatomy::Memory measured = estimate(options).memory;
    CHECK(predicted.peak == measured.peak);
    CHECK(predicted.at_peak == measured.at_peak);
    CHECK(bytes_of(measured.at_peak, Component::model_weights) >= 4 * measured.parameters);
    for (const Component none : {Component::optimizer_states, Component::gradients,
                                 Component::activations, Component::unknown})
      CHECK(bytes_of(measured.at_peak, none) == 0);
  }
}

}  // namespace anatomy_dry_run_prediction_test
