#include "hasten/models/detail/gpt2_config.h"

#include <nlohmann/json.hpp>

#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "models/config_reader.h"

namespace hasten {

GPT2Config GPT2Config::from_file(const std::filesystem::path& path) {
  return from_json(read_file(path), path.string());
}

GPT2Config GPT2Config::from_json(const std::string& text, const std::string& where) {
  ConfigReader reader(text, where);
  reader.require_model_type("gpt2");
  GPT2Config config;
  reader.read("vocab_size", config.vocab_size);
  reader.read("n_positions", config.n_positions);
  reader.read("n_embd", config.n_embd);
  reader.read("n_layer", config.n_layer);
  reader.read("n_head", config.n_head);
  reader.read("n_inner", config.n_inner);
  reader.read("activation_function", config.activation_function);
  reader.read("resid_pdrop", config.resid_pdrop);
  reader.read("embd_pdrop", config.embd_pdrop);
  reader.read("attn_pdrop", config.attn_pdrop);
  reader.read("layer_norm_epsilon", config.layer_norm_epsilon);
  reader.read("initializer_range", config.initializer_range);
  reader.read("scale_attn_weights", config.scale_attn_weights);
  reader.read("scale_attn_by_inverse_layer_idx", config.scale_attn_by_inverse_layer_idx);
  reader.read("bos_token_id", config.bos_token_id);
  reader.read_token_ids("eos_token_id", config.eos_token_ids);
  reader.read("pad_token_id", config.pad_token_id);
  reader.read("tie_word_embeddings", config.tie_word_embeddings);
  reader.read_head(config);
  reader.check_not_true("add_cross_attention", "hasten implements GPT-2 as a decoder only");
  config.other_keys = reader.other_keys();
  config.check(where);
  return config;
}

std::optional<GPT2Config> GPT2Config::by_name(const std::string& name) {
  if (name == "gpt2") return GPT2Config{};
  if (name == "gpt2-medium") return GPT2Config{.n_embd = 1024, .n_layer = 24, .n_head = 16};
  if (name == "gpt2-large") return GPT2Config{.n_embd = 1280, .n_layer = 36, .n_head = 20};
  if (name == "gpt2-xl") return GPT2Config{.n_embd = 1600, .n_layer = 48, .n_head = 25};
  return std::nullopt;
}

std::string GPT2Config::to_json() const {
  nlohmann::json object = config_object("gpt2", *this);
  object["vocab_size"] = vocab_size;
  object["n_positions"] = n_positions;
  object["n_embd"] = n_embd;
  object["n_layer"] = n_layer;
  object["n_head"] = n_head;
  object["n_inner"] = number_or_null(n_inner);
  object["activation_function"] = activation_function;
  object["resid_pdrop"] = resid_pdrop;
  object["embd_pdrop"] = embd_pdrop;
  object["attn_pdrop"] = attn_pdrop;
  object["layer_norm_epsilon"] = layer_norm_epsilon;
  object["initializer_range"] = initializer_range;
  object["scale_attn_weights"] = scale_attn_weights;
  object["scale_attn_by_inverse_layer_idx"] = scale_attn_by_inverse_layer_idx;
  object["bos_token_id"] = number_or_null(bos_token_id);
  object["eos_token_id"] = token_ids_json(eos_token_ids);
  object["pad_token_id"] = number_or_null(pad_token_id);
  object["tie_word_embeddings"] = tie_word_embeddings;
  return object.dump(2) + "\n";
}

void GPT2Config::check(const std::string& where) const {
  const ConfigChecks check(where);
  check.positive("vocab_size", vocab_size);
  check.positive("n_positions", n_positions);
  check.positive("n_embd", n_embd);
  check.positive("n_head", n_head);
  check.positive("n_inner", inner_size());
  if (n_layer < 0 || n_layer > 10000)
    throw_config_value(where, "n_layer", std::to_string(n_layer), "0 to 10000");
  if (n_embd % n_head != 0) {
    throw_config_value(where, "n_embd", std::to_string(n_embd),
                       str("a multiple of n_head (", n_head, ")"));
  }
  check.activation("activation_function", activation_function);
  check.rate("resid_pdrop", resid_pdrop);
  check.rate("embd_pdrop", embd_pdrop);
  check.rate("attn_pdrop", attn_pdrop);
  check.not_negative("layer_norm_epsilon", layer_norm_epsilon);
  check.not_negative("initializer_range", initializer_range);
  check.head(*this);
}

}  // namespace hasten
