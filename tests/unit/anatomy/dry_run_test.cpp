// A dry run against the real one: the same ledger, to the byte.
#include "hasten/anatomy/dry_run.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

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
