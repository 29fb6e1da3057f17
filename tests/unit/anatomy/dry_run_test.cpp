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
