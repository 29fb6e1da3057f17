// Reads and writes the configurations of GPT-2 and Llama, and refuses what hasten does not compute.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "hasten/base/error.h"
#include "hasten/models/gpt2.h"
#include "hasten/models/llama.h"
#include "hasten/options/train_options.h"
#include "unit/data/error_of.h"

namespace models_decoder_configs_test {

using namespace hasten;
using nlohmann::json;

namespace {

std::string error_of_gpt2(const std::string& text) {
  return error_of([&] { (void)GPT2Config::from_json(text, "config.json"); });
}
std::string error_of_llama(const std::string& text) {
  return error_of([&] { (void)LlamaConfig::from_json(text, "config.json"); });
}

}  // namespace

TEST_CASE("decoder configs: a file is read, and written with its unknown keys") {
  const GPT2Config config = GPT2Config::from_json(
      R"({"model_type": "gpt2", "n_embd": 32, "n_head": 4, "n_inner": null, "eos_token_id": [5, 6],
          "pad_token_id": 3, "bos_token_id": null, "scale_attn_by_inverse_layer_idx": true,
          "task_specific_params": {"x": 1}, "activation_function": "gelu"})",
      "config.json");
  CHECK(config.n_embd == 32);
  CHECK(config.inner_size() == 128);
  CHECK(config.eos_token_ids == std::vector<std::int64_t>{5, 6});
  CHECK(config.pad_token_id == 3);
  CHECK_FALSE(config.bos_token_id.has_value());
  const json written = json::parse(config.to_json());
  CHECK(written.at("task_specific_params") == json({{"x", 1}}));
  CHECK(written.at("eos_token_id") == json({5, 6}));
  CHECK(written.at("n_inner").is_null());
  CHECK(written.at("bos_token_id").is_null());
  CHECK(GPT2Config::from_json(config.to_json(), "again").to_json() == config.to_json());
}

TEST_CASE("decoder configs: rotary positions of every version of transformers are read") {
  const auto rope_of = [](const std::string& keys) {
    return LlamaConfig::from_json(R"({"model_type": "llama", )" + keys + "}", "config.json")
        .rope_parameters;
  };
  CHECK(rope_of(R"("rope_theta": 500000.0, "rope_scaling": null)").rope_theta == 500000);
  const RopeParameters old =
      rope_of(R"("rope_theta": 1000, "rope_scaling": {"type": "linear", "factor": 4.0})");
  CHECK(old.rope_type == "linear");
  CHECK(old.factor == 4);
  CHECK(old.rope_theta == 1000);
  const RopeParameters llama3 = rope_of(
      R"("rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0,
          "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192})");
  CHECK(llama3.rope_type == "llama3");
  CHECK(llama3.factor == 32);
  CHECK(llama3.original_max_position_embeddings == 8192);
  CHECK(rope_of(R"("original_max_position_embeddings": 64, "rope_scaling": {"rope_type": "llama3",
          "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
          "original_max_position_embeddings": 32})")
            .original_max_position_embeddings == 64);
}

TEST_CASE("decoder configs: unsupported settings are refused by name") {
  CHECK(
      contains(error_of_llama(R"({"model_type": "llama", "rope_scaling": {"rope_type": "yarn"}})"),
               "rope_type: got yarn, expected default, linear, llama3"));
  CHECK(contains(error_of_llama(R"({"model_type": "llama", "hidden_act": "mish"})"),
                 "key hidden_act: got mish"));
  CHECK(contains(error_of_llama(R"({"model_type": "llama", "num_key_value_heads": 5})"),
                 "num_key_value_heads: got 5, expected a divisor of num_attention_heads (32)"));
  CHECK(contains(error_of_llama(R"({"model_type": "llama", "head_dim": 5})"), "head_dim"));
  CHECK(contains(error_of_llama(R"({"model_type": "llama", "rope_scaling": {"factor": 0.5}})"),
                 "factor: got 0.5"));
  CHECK(
      contains(error_of_llama(
                   R"({"model_type": "llama", "rope_parameters": {"partial_rotary_factor": 0.5}})"),
               "partial_rotary_factor"));
  CHECK(contains(error_of_llama(R"({"model_type": "llama", "partial_rotary_factor": 0.5})"),
                 "partial_rotary_factor: got 0.5"));
  CHECK(contains(error_of_llama(R"({"model_type": "llama", "rope_scaling": {"type": "linear"}})"),
                 "factor: got none"));
  CHECK(contains(error_of_llama(
                     R"({"model_type": "llama", "rope_parameters": {"rope_type": "llama3",
                         "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": null}})"),
                 "high_freq_factor: got none, expected a number, for the rope_type llama3"));
  CHECK(contains(error_of_llama(R"({"model_type": "gpt2"})"), "models.unknown-type"));
  CHECK(contains(error_of_gpt2(R"({"model_type": "gpt2", "activation_function": "selu"})"),
                 "key activation_function: got selu"));
  CHECK(contains(error_of_gpt2(R"({"model_type": "gpt2", "add_cross_attention": true})"),
                 "add_cross_attention"));
  CHECK(contains(error_of_gpt2(R"({"model_type": "gpt2", "n_head": 5})"), "a multiple of n_head"));
  CHECK(contains(error_of_gpt2(R"({"model_type": "gpt2", "eos_token_id": "x"})"), "eos_token_id"));
}

TEST_CASE("decoder configs: the built-in names are those of load_model") {
  for (const std::string& name : builtin_models()) {
    CAPTURE(name);
    CHECK(vocab_size_of(name) > 30000);
    CHECK(default_task_of(name) ==
          (name.rfind("bert", 0) == 0 ? Task::text_classification : Task::causal_lm));
  }
  CHECK(LlamaConfig::by_name("llama-3.2-1b")->head_size() == 64);
  CHECK(LlamaConfig::by_name("llama-3-8b")->key_value_heads() == 8);
  CHECK_FALSE(GPT2Config::by_name("gpt3").has_value());
}

TEST_CASE("decoder configs: options that a model does not have are refused") {
  const auto error = [](const char* model, const ModelOptions& options) {
    return error_of([&] { (void)load_model(model, options); });
  };
  CHECK(contains(error("llama-3.2-1b", {.task = Task::causal_lm, .hidden_dropout = 0.1}),
                 "hidden_dropout"));
  CHECK(contains(error("gpt2", {.task = Task::causal_lm, .classifier_dropout = 0.1}),
                 "classifier_dropout"));
  CHECK(contains(error("gpt2", {.task = Task::masked_lm}),
                 "the task masked-lm: got a model of type gpt2, expected a model of type bert"));
  CHECK(contains(error("bert-base", {.task = Task::causal_lm}), "a model of type gpt2 or llama"));
}

TEST_CASE("decoder configs: a GPT-2's and a Llama's norms and biases do not decay") {
  const GPT2LMHeadModel gpt2(
      {.vocab_size = 10, .n_positions = 8, .n_embd = 4, .n_layer = 1, .n_head = 2});
  const auto kept = undecayed_parameters_of(gpt2);
  CHECK(kept.count("transformer.h.0.ln_1.weight") == 1);
  CHECK(kept.count("transformer.ln_f.weight") == 1);
  CHECK(kept.count("transformer.h.0.attn.c_attn.bias") == 1);
  CHECK(kept.count("transformer.h.0.attn.c_attn.weight") == 0);
  const LlamaForCausalLM llama({.vocab_size = 10,
                                .hidden_size = 4,
                                .intermediate_size = 6,
                                .num_hidden_layers = 1,
                                .num_attention_heads = 2});
  const auto norms = undecayed_parameters_of(llama);
  CHECK(norms == std::set<std::string>{"model.layers.0.input_layernorm.weight",
                                       "model.layers.0.post_attention_layernorm.weight",
                                       "model.norm.weight"});
}

TEST_CASE("decoder configs: new weights have the standard deviations of transformers") {
  torch::manual_seed(2);
  GPT2LMHeadModel model({.vocab_size = 400,
                         .n_positions = 16,
                         .n_embd = 64,
                         .n_layer = 8,
                         .n_head = 2,
                         .initializer_range = 0.1});
  model.initialize();
  for (const auto& item : model.named_parameters()) {
    CAPTURE(item.key());
    const at::Tensor& weight = item.value();
    if (weight.dim() == 1) {
      const bool is_norm = item.key().find("ln_") != std::string::npos;
      CHECK(weight.eq(is_norm && item.key().find("weight") != std::string::npos ? 1 : 0)
                .all()
                .item<bool>());
      continue;
    }
    // Weights of products that add to the residual stream of 8 layers are divided by the root of
    // 16.
    const double expected = item.key().find("c_proj.weight") != std::string::npos ? 0.025 : 0.1;
    CHECK(weight.std().item<double>() == doctest::Approx(expected).epsilon(0.1));
  }
}

}  // namespace models_decoder_configs_test
