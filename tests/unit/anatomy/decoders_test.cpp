// Steps of GPT-2 and Llama are predicted to the byte, and so are generations with caches and beams.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include "hasten/anatomy/anatomy.h"
#include "hasten/base/files.h"
#include "hasten/models/generation.h"
#include "hasten/trainer/estimate.h"

namespace anatomy_decoders_test {

using namespace hasten;
using anatomy::Component;

namespace {

constexpr const char* kGpt2 =
    R"({"model_type": "gpt2", "vocab_size": 300, "n_embd": 32, "n_layer": 2, "n_head": 2,
        "n_positions": 256, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1})";
constexpr const char* kLlama =
    R"({"model_type": "llama", "vocab_size": 300, "hidden_size": 32, "intermediate_size": 72,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 256, "attention_dropout": 0.1,
        "rope_parameters": {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0,
                            "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                            "original_max_position_embeddings": 64}})";

// Compares the measured memory with the prediction, and returns the measurement.
anatomy::Memory check_prediction(const std::string& config, EstimateOptions options) {
  const TemporaryDirectory folder;
  write_file_atomically(folder.path() / "config.json", config);
  options.model = (folder.path() / "config.json").string();
  const anatomy::Memory predicted = estimate(options).memory;
  options.dry = false;
  const anatomy::Memory measured = estimate(options).memory;
  CHECK(predicted.peak == measured.peak);
  CHECK(predicted.at_peak == measured.at_peak);
  CHECK(bytes_of(measured.at_peak, Component::unknown) == 0);
  return measured;
}

}  // namespace

TEST_CASE("decoders: a step is predicted to the byte, also with blocks of causal attention") {
  for (const char* config : {kGpt2, kLlama}) {
    CAPTURE(config);
    for (const std::int64_t length : {40, 200}) {
      CAPTURE(length);
      for (const bool bf16 : {false, true}) {
        CAPTURE(bf16);
        EstimateOptions options{.length = length};
        options.arguments.per_device_train_batch_size = 3;
        options.arguments.bf16 = bf16;
        options.arguments.max_grad_norm =
            1e-3;  // clipping depends on the norm; here it always clips
        check_prediction(config, options);
        options.mode = EstimateMode::inference;
        check_prediction(config, options);
      }
    }
  }
}

TEST_CASE("decoders: a step on a GPU is predicted") {
  for (const char* config : {kGpt2, kLlama}) {
    CAPTURE(config);
    const TemporaryDirectory folder;
    write_file_atomically(folder.path() / "config.json", config);
    EstimateOptions options{.model = (folder.path() / "config.json").string(), .length = 40};
    const anatomy::Memory on_cpu = estimate(options).memory;
    options.device = "cuda:a100-40gb";
    const anatomy::Memory on_gpu = estimate(options).memory;
    CHECK(on_gpu.parameters == on_cpu.parameters);
    CHECK(on_gpu.peak > 12 * on_gpu.parameters);  // weights and two moments
    CHECK(bytes_of(on_gpu.at_peak, Component::unknown) == 0);
  }
}

TEST_CASE("decoders: other tasks and step-by-step attention are predicted to the byte") {
  for (const char* config : {kGpt2, kLlama}) {
    CAPTURE(config);
    EstimateOptions options{.task = Task::text_classification, .length = 24};
    options.arguments.per_device_train_batch_size = 1;
    options.arguments.max_grad_norm = 1e-3;
    check_prediction(config, options);
    options.task = std::nullopt;
    options.attn_implementation = AttentionImplementation::eager;
    options.arguments.per_device_train_batch_size = 2;
    options.arguments.gradient_accumulation_steps = 2;
    check_prediction(config, options);
  }
}

TEST_CASE("decoders: caches and beams are functionality, and are predicted to the byte") {
  constexpr std::int64_t kPrompt = 30, kNew = 25, kRows = 3;
  for (const char* config : {kGpt2, kLlama}) {
    CAPTURE(config);
    for (const std::int64_t beams : {1, 4}) {
      CAPTURE(beams);
      for (const bool bf16 : {false, true}) {
        CAPTURE(bf16);
        EstimateOptions options{.length = kPrompt,
                                .mode = EstimateMode::generation,
                                .steps = 1,
                                .new_tokens = kNew,
                                .beams = beams};
        options.arguments.per_device_train_batch_size = kRows;
        options.arguments.bf16 = bf16;
        const anatomy::Memory memory = check_prediction(config, options);
        // Keys and values of two layers, the texts of beams in four tables, and the batch.
        const std::int64_t width = config == kGpt2 ? 32 : 16,
                           tokens = kRows * beams * (kPrompt + kNew);
        const std::int64_t caches = 2 * 2 * tokens * width * (bf16 ? 2 : 4),
                           texts = (beams > 1 ? 4 : 1) * tokens * 8,
                           batch = 2 * kRows * kPrompt * 8;
        CHECK(bytes_of(memory.at_peak, Component::functionality) == caches + texts + batch);
        for (const Component none :
             {Component::optimizer_states, Component::gradients, Component::activations})
          CHECK(bytes_of(memory.at_peak, none) == 0);
      }
    }
  }
}

TEST_CASE("decoders: a generation of a model for texts only is refused") {
  CHECK_THROWS_WITH(estimate({.model = "bert-base", .length = 8, .mode = EstimateMode::generation}),
                    doctest::Contains("predicts no next token"));
}

}  // namespace anatomy_decoders_test
