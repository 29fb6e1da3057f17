#include "hasten/models/detail/bert_config.h"

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
  reader.read_encoder(config);
  reader.read("max_position_embeddings", config.max_position_embeddings);
  reader.read("type_vocab_size", config.type_vocab_size);
  const Json& object = reader.object();
  if (object.contains("pad_token_id") && object.at("pad_token_id").is_null())
    config.pad_token_id = -1;
  reader.read("pad_token_id", config.pad_token_id);
  reader.read("classifier_dropout", config.classifier_dropout);
  reader.read_head(config);
  reader.read("tie_word_embeddings", config.tie_word_embeddings);
  for (const char* key : {"is_decoder", "add_cross_attention"})
    reader.check_not_true(key, "hasten implements BERT as an encoder only");
  if (object.contains("position_embedding_type") &&
      object.at("position_embedding_type") != "absolute") {
    throw_config_value(where, "position_embedding_type",
                       object.at("position_embedding_type").dump(), "absolute");
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
  write_encoder(object, *this);
  object["max_position_embeddings"] = max_position_embeddings;
  object["type_vocab_size"] = type_vocab_size;
  object["pad_token_id"] = pad_token_id < 0 ? Json() : Json(pad_token_id);
  object["classifier_dropout"] = classifier_dropout ? Json(*classifier_dropout) : Json();
  object["tie_word_embeddings"] = tie_word_embeddings;
  return object.dump(2) + "\n";
}

void BertConfig::check(const std::string& where) const {
  const ConfigChecks check(where);
  check.positive("vocab_size", vocab_size);
  check.encoder(*this);
  check.positive("max_position_embeddings", max_position_embeddings);
  check.positive("type_vocab_size", type_vocab_size);
  if (classifier_dropout) check.rate("classifier_dropout", *classifier_dropout);
  if (pad_token_id >= vocab_size)
    throw_config_value(where, "pad_token_id", std::to_string(pad_token_id),
                       str("below vocab_size (", vocab_size, ")"));
  check.head(*this);
}

}  // namespace hasten
