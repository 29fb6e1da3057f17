// A dry run gives the same ledger as a real run, to the byte.
#include "hasten/anatomy/dry_run.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <ctime>
#include <exception>

#include "anatomy/call_collector.h"
#include "anatomy/dry_tensor.h"
#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/ops/ops.h"
#include "hasten/optim/adamw.h"
#include "hasten/trainer/estimate.h"
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
    return memory.most[static_cast<std::size_t>(Component::activations)];
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
    // The activations of one layer, and the inputs of the four.
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
  // All products of the layers once more; the pooler and the classifier are outside.
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

// A decoder with the parts of large ones: root-mean-square norms, grouped heads for keys and
// values, rotated positions, a gated inner layer.
struct LargeDecoder : torch::nn::Module {
  static constexpr std::int64_t kLayers = 80, kWidth = 8192, kInner = 28672, kHeads = 64,
                                kSharedHeads = 8, kSize = kWidth / kHeads, kWords = 128256;
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
      : words(register_module("embed_tokens", torch::nn::Embedding(kWords, kWidth))),
        layers(register_module("layers", torch::nn::ModuleList())),
        head(register_module(
            "lm_head", torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWords).bias(false)))) {
    for (std::int64_t i = 0; i < kLayers; ++i) layers->push_back(std::make_shared<Layer>());
  }
  at::Tensor forward(const at::Tensor& ids) {
    const at::Tensor angles =
        at::outer(at::arange(ids.size(1), at::kFloat), at::ones({kSize / 2})).repeat({1, 2});
    const at::Tensor cosine = angles.cos().to(ids.device()), sine = angles.sin().to(ids.device());
    at::Tensor x = words(ids);
    for (const auto& layer : *layers) x = layer->as<Layer>()->forward(x, cosine, sine);
    return at::cross_entropy_loss(head(x).view({-1, kWords}), ids.view(-1));
  }
  torch::nn::Embedding words;
  torch::nn::ModuleList layers;
  torch::nn::Linear head;
};

}  // namespace

TEST_CASE("dry run: a step of a decoder of 70 billion parameters takes seconds and no memory") {
  const std::clock_t began =
      std::clock();  // the processor's time, which other programs do not change
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
  const double seconds = static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
  MESSAGE("seconds: ", seconds);
  CHECK(seconds < 5 * kSlowdown);
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

}  // namespace anatomy_dry_run_test
