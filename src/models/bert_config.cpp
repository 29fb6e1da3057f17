#include "hasten/models/bert_config.h"

#include <nlohmann/json.hpp>

#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "models/config_reader.h"

namespace hasten {

using Json = nlohmann::json;

BertConfig BertConfig::from_file(const std::filesystem::path& path) {
  return from_json(read_file(path), path.string());
}

BertConfig BertConfig::from_json(const std::string& text, const std::string& where) {
  ConfigReader reader(text, where);
  reader.require_model_type("bert");
  BertConfig config;
  reader.read("vocab_size", config.vocab_size);
  reader.read("hidden_size", config.hidden_size);
  reader.read("num_hidden_layers", config.num_hidden_layers);
  reader.read("num_attention_heads", config.num_attention_heads);
  reader.read("intermediate_size", config.intermediate_size);
  reader.read("hidden_act", config.hidden_act);
  reader.read("hidden_dropout_prob", config.hidden_dropout_prob);
  reader.read("attention_probs_dropout_prob", config.attention_probs_dropout_prob);
  reader.read("max_position_embeddings", config.max_position_embeddings);
  reader.read("type_vocab_size", config.type_vocab_size);
  reader.read("initializer_range", config.initializer_range);
  reader.read("layer_norm_eps", config.layer_norm_eps);
  const Json& object = reader.object();
  if (object.contains("pad_token_id") && object.at("pad_token_id").is_null())
    config.pad_token_id = -1;
  reader.read("pad_token_id", config.pad_token_id);
  reader.read("classifier_dropout", config.classifier_dropout);
  reader.read_head(config);
  reader.read("tie_word_embeddings", config.tie_word_embeddings);
  for (const char* key : {"is_decoder", "add_cross_attention"}) {
    if (object.contains(key) && object.at(key) == true)
      refuse_config(where, key, "true", "false", "hasten implements BERT as an encoder only");
  }
  if (object.contains("position_embedding_type") &&
      object.at("position_embedding_type") != "absolute") {
    refuse_config(where, "position_embedding_type", object.at("position_embedding_type").dump(),
                  "absolute");
  }
  config.other_keys = reader.other_keys();
  config.check(where);
  return config;
}

std::optional<BertConfig> BertConfig::by_name(const std::string& name) {
  if (name == "bert-base") return BertConfig{};
  if (name == "bert-large") {
    return BertConfig{.hidden_size = 1024,
                      .num_hidden_layers = 24,
                      .num_attention_heads = 16,
                      .intermediate_size = 4096};
  }
  return std::nullopt;
}

std::string BertConfig::label_name(std::int64_t id) const { return label_name_of(id2label, id); }

std::string BertConfig::to_json() const {
  Json object = config_object("bert", *this);
  object["vocab_size"] = vocab_size;
  object["hidden_size"] = hidden_size;
  object["num_hidden_layers"] = num_hidden_layers;
  object["num_attention_heads"] = num_attention_heads;
  object["intermediate_size"] = intermediate_size;
  object["hidden_act"] = hidden_act;
  object["hidden_dropout_prob"] = hidden_dropout_prob;
  object["attention_probs_dropout_prob"] = attention_probs_dropout_prob;
  object["max_position_embeddings"] = max_position_embeddings;
  object["type_vocab_size"] = type_vocab_size;
  object["initializer_range"] = initializer_range;
  object["layer_norm_eps"] = layer_norm_eps;
  object["pad_token_id"] = pad_token_id < 0 ? Json() : Json(pad_token_id);
  object["classifier_dropout"] = classifier_dropout ? Json(*classifier_dropout) : Json();
  object["tie_word_embeddings"] = tie_word_embeddings;
  return object.dump(2) + "\n";
}

void BertConfig::check(const std::string& where) const {
  const ConfigChecks check(where);
  check.positive("vocab_size", vocab_size);
  check.positive("hidden_size", hidden_size);
  check.positive("num_attention_heads", num_attention_heads);
  check.positive("intermediate_size", intermediate_size);
  check.positive("max_position_embeddings", max_position_embeddings);
  check.positive("type_vocab_size", type_vocab_size);
  if (num_hidden_layers < 0 || num_hidden_layers > 10000)
    refuse_config(where, "num_hidden_layers", std::to_string(num_hidden_layers), "0 to 10000");
  if (hidden_size % num_attention_heads != 0) {
    refuse_config(where, "hidden_size", std::to_string(hidden_size),
                  str("a multiple of num_attention_heads (", num_attention_heads, ")"));
  }
  check.rate("hidden_dropout_prob", hidden_dropout_prob);
  check.rate("attention_probs_dropout_prob", attention_probs_dropout_prob);
  check.not_negative("initializer_range", initializer_range);
  check.not_negative("layer_norm_eps", layer_norm_eps);
  if (classifier_dropout) check.rate("classifier_dropout", *classifier_dropout);
  if (pad_token_id >= vocab_size)
    refuse_config(where, "pad_token_id", std::to_string(pad_token_id),
                  str("below vocab_size (", vocab_size, ")"));
  check.activation("hidden_act", hidden_act);
  check.head(*this);
}

}  // namespace hasten
