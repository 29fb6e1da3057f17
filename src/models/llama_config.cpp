#include "hasten/models/detail/llama_config.h"

#include <nlohmann/json.hpp>

#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "models/config_reader.h"

namespace hasten {
namespace {

void check_rope(const std::string& where, const RopeParameters& rope) {
  if (rope.rope_type != "default" && rope.rope_type != "linear" && rope.rope_type != "llama3")
    throw_config_value(where, "rope_type", rope.rope_type, "default, linear, llama3");
  if (!(rope.rope_theta > 0))
    throw_config_value(where, "rope_theta", str(rope.rope_theta), "above 0");
  if (!(rope.factor >= 1)) throw_config_value(where, "factor", str(rope.factor), "1 or more");
  if (!(rope.low_freq_factor > 0))
    throw_config_value(where, "low_freq_factor", str(rope.low_freq_factor), "above 0");
  if (!(rope.high_freq_factor > rope.low_freq_factor)) {
    throw_config_value(where, "high_freq_factor", str(rope.high_freq_factor),
                       str("above low_freq_factor (", rope.low_freq_factor, ")"));
  }
  if (rope.original_max_position_embeddings < 0) {
    throw_config_value(where, "original_max_position_embeddings",
                       str(rope.original_max_position_embeddings), "a positive size");
  }
}

// Refuses a file that leaves out a number that its type needs. transformers has no default for
// these numbers either.
void require_numbers(const ConfigReader& reader, const std::string& where,
                     const std::string& rope_type) {
  static const std::map<std::string, std::vector<const char*>> numbers = {
      {"linear", {"factor"}}, {"llama3", {"factor", "low_freq_factor", "high_freq_factor"}}};
  const auto found = numbers.find(rope_type);
  if (found == numbers.end()) return;
  for (const char* const key : found->second) {
    const auto value = reader.object().find(key);
    if (value == reader.object().end() || value->is_null())
      throw_config_value(where, key, "none", "a number, for the rope_type " + rope_type);
  }
}

// Refuses to rotate only a part of each head.
void check_full_rotation(ConfigReader& reader, const std::string& where) {
  double rotated = 1;
  reader.read("partial_rotary_factor", rotated);
  if (rotated != 1) throw_config_value(where, "partial_rotary_factor", str(rotated), "1");
}

void read_rope(ConfigReader& reader, const std::string& where, RopeParameters& rope) {
  // In earlier versions the key is "type".
  reader.read("type", rope.rope_type);
  reader.read("rope_type", rope.rope_type);
  require_numbers(reader, where, rope.rope_type);
  reader.read("rope_theta", rope.rope_theta);
  reader.read("factor", rope.factor);
  reader.read("low_freq_factor", rope.low_freq_factor);
  reader.read("high_freq_factor", rope.high_freq_factor);
  reader.read("original_max_position_embeddings", rope.original_max_position_embeddings);
  check_full_rotation(reader, where);
}

nlohmann::json rope_json(const RopeParameters& rope) {
  nlohmann::json object = {{"rope_type", rope.rope_type}, {"rope_theta", rope.rope_theta}};
  if (rope.rope_type != "default") object["factor"] = rope.factor;
  if (rope.rope_type != "llama3") return object;
  object["low_freq_factor"] = rope.low_freq_factor;
  object["high_freq_factor"] = rope.high_freq_factor;
  if (rope.original_max_position_embeddings > 0)
    object["original_max_position_embeddings"] = rope.original_max_position_embeddings;
  return object;
}

}  // namespace

LlamaConfig LlamaConfig::from_file(const std::filesystem::path& path) {
  return from_json(read_file(path), path.string());
}

LlamaConfig LlamaConfig::from_json(const std::string& text, const std::string& where) {
  ConfigReader reader(text, where);
  reader.require_model_type("llama");
  LlamaConfig config;
  reader.read("vocab_size", config.vocab_size);
  reader.read("hidden_size", config.hidden_size);
  reader.read("intermediate_size", config.intermediate_size);
  reader.read("num_hidden_layers", config.num_hidden_layers);
  reader.read("num_attention_heads", config.num_attention_heads);
  reader.read("num_key_value_heads", config.num_key_value_heads);
  reader.read("head_dim", config.head_dim);
  reader.read("hidden_act", config.hidden_act);
  reader.read("max_position_embeddings", config.max_position_embeddings);
  reader.read("initializer_range", config.initializer_range);
  reader.read("rms_norm_eps", config.rms_norm_eps);
  reader.read("pad_token_id", config.pad_token_id);
  reader.read("bos_token_id", config.bos_token_id);
  reader.read_token_ids("eos_token_id", config.eos_token_ids);
  reader.read("tie_word_embeddings", config.tie_word_embeddings);
  reader.read("attention_bias", config.attention_bias);
  reader.read("attention_dropout", config.attention_dropout);
  reader.read("mlp_bias", config.mlp_bias);
  reader.read("rope_theta", config.rope_parameters.rope_theta);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (auto rope = reader.read_object(key)) read_rope(*rope, where, config.rope_parameters);
  }
  check_full_rotation(reader, where);
  // Some files have the key here. It then takes precedence over the rotary positions, as in
  // transformers.
  if (config.rope_parameters.rope_type == "llama3") {
    reader.read("original_max_position_embeddings",
                config.rope_parameters.original_max_position_embeddings);
  }
  reader.read_head(config);
  config.other_keys = reader.other_keys();
  config.check(where);
  return config;
}

namespace {

LlamaConfig llama2_7b() {
  LlamaConfig config;
  config.max_position_embeddings = 4096;
  config.rms_norm_eps = 1e-5;
  return config;
}

LlamaConfig llama3_8b() {
  LlamaConfig config;
  config.vocab_size = 128256;
  config.intermediate_size = 14336;
  config.num_key_value_heads = 8;
  config.max_position_embeddings = 8192;
  config.rms_norm_eps = 1e-5;
  config.bos_token_id = 128000;
  config.eos_token_ids = {128001};
  config.rope_parameters.rope_theta = 500000;
  return config;
}

LlamaConfig llama32(std::int64_t hidden, std::int64_t layers, std::int64_t heads) {
  LlamaConfig config = llama3_8b();
  config.hidden_size = hidden;
  config.intermediate_size = 8192;
  config.num_hidden_layers = layers;
  config.num_attention_heads = heads;
  config.max_position_embeddings = 131072;
  config.tie_word_embeddings = true;
  config.rope_parameters.rope_type = "llama3";
  config.rope_parameters.factor = 32;
  config.rope_parameters.original_max_position_embeddings = 8192;
  return config;
}

}  // namespace

std::optional<LlamaConfig> LlamaConfig::by_name(const std::string& name) {
  if (name == "llama-2-7b") return llama2_7b();
  if (name == "llama-3-8b") return llama3_8b();
  if (name == "llama-3.2-1b") return llama32(2048, 16, 32);
  if (name == "llama-3.2-3b") return llama32(3072, 28, 24);
  return std::nullopt;
}

std::string LlamaConfig::to_json() const {
  nlohmann::json object = config_object("llama", *this);
  object["vocab_size"] = vocab_size;
  object["hidden_size"] = hidden_size;
  object["intermediate_size"] = intermediate_size;
  object["num_hidden_layers"] = num_hidden_layers;
  object["num_attention_heads"] = num_attention_heads;
  object["num_key_value_heads"] = key_value_heads();
  object["head_dim"] = head_size();
  object["hidden_act"] = hidden_act;
  object["max_position_embeddings"] = max_position_embeddings;
  object["initializer_range"] = initializer_range;
  object["rms_norm_eps"] = rms_norm_eps;
  object["pad_token_id"] = number_or_null(pad_token_id);
  object["bos_token_id"] = number_or_null(bos_token_id);
  object["eos_token_id"] = token_ids_json(eos_token_ids);
  object["tie_word_embeddings"] = tie_word_embeddings;
  object["attention_bias"] = attention_bias;
  object["attention_dropout"] = attention_dropout;
  object["mlp_bias"] = mlp_bias;
  object["rope_parameters"] = rope_json(rope_parameters);
  return object.dump(2) + "\n";
}

void LlamaConfig::check(const std::string& where) const {
  const ConfigChecks check(where);
  check.positive("vocab_size", vocab_size);
  check.positive("hidden_size", hidden_size);
  check.positive("intermediate_size", intermediate_size);
  check.positive("num_attention_heads", num_attention_heads);
  check.positive("num_key_value_heads", key_value_heads());
  check.layers_and_heads(num_hidden_layers, hidden_size, num_attention_heads);
  check.positive("head_dim", head_size());
  if (num_attention_heads % key_value_heads() != 0) {
    throw_config_value(where, "num_key_value_heads", std::to_string(key_value_heads()),
                       str("a divisor of num_attention_heads (", num_attention_heads, ")"));
  }
  if (head_size() % 2 != 0)
    throw_config_value(where, "head_dim", std::to_string(head_size()), "an even number");
  check.activation("hidden_act", hidden_act);
  check.positive("max_position_embeddings", max_position_embeddings);
  check.not_negative("initializer_range", initializer_range);
  check.not_negative("rms_norm_eps", rms_norm_eps);
  check.rate("attention_dropout", attention_dropout);
  if (pad_token_id && (*pad_token_id < -1 || *pad_token_id >= vocab_size)) {
    throw_config_value(where, "pad_token_id", std::to_string(*pad_token_id),
                       str("below vocab_size (", vocab_size, ")"));
  }
  check_rope(where, rope_parameters);
  check.head(*this);
}

}  // namespace hasten
