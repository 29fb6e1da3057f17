// File: models/config_reader.h (internal)
// Reads and writes the keys of a model's config.json, for the configurations of all models.
//
//   ConfigReader reader(text, "model/config.json");
//   reader.require_model_type("vit");
//   reader.read("hidden_size", config.hidden_size);   // the default stays if the key is absent
//   reader.read_head(config);                         // labels and problem type
//   config.other_keys = reader.other_keys();          // kept for the file that is written
//
// Throws DataError "models.config-json", "models.config-value", "models.unknown-type". Thread rule:
// values and pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace hasten {

[[noreturn]] void throw_config_value(const std::string& where, const std::string& key,
                                     std::string got, std::string expected, std::string hint = "");

// Returns the model_type of a configuration; empty if it has none.
std::string model_type_in(const std::string& text, const std::string& where);

// Reads keys and removes them from the object. hasten does not know the keys left at the end.
class ConfigReader {
 public:
  ConfigReader(const std::string& text, const std::string& where);

  void require_model_type(const std::string& expected);
  void read(const char* key, std::int64_t& to);
  void read(const char* key, double& to);
  void read(const char* key, std::optional<double>& to);
  void read(const char* key, std::optional<std::int64_t>& to);  // null unsets it
  void read(const char* key, std::string& to);
  void read(const char* key, bool& to);
  void read(const char* key, std::vector<std::string>& to);
  void read(const char* key, std::vector<std::int64_t>& to);
  // Reads ids of tokens: one number or a list; null means none.
  void read_token_ids(const char* key, std::vector<std::int64_t>& to);
  // Returns a separate reader for the keys of an object; unset if the key is absent or null.
  std::optional<ConfigReader> read_object(const char* key);
  // Refuses a value that is true.
  void check_not_true(const char* key, const char* why);
  // Reads the keys that a BERT and a vision transformer share.
  template <class Config>
  void read_encoder(Config& config) {
    read("hidden_size", config.hidden_size);
    read("num_hidden_layers", config.num_hidden_layers);
    read("num_attention_heads", config.num_attention_heads);
    read("intermediate_size", config.intermediate_size);
    read("hidden_act", config.hidden_act);
    read("hidden_dropout_prob", config.hidden_dropout_prob);
    read("attention_probs_dropout_prob", config.attention_probs_dropout_prob);
    read("initializer_range", config.initializer_range);
    read("layer_norm_eps", config.layer_norm_eps);
  }
  // Reads the keys of the classifier, and the architectures.
  template <class Config>
  void read_head(Config& config) {
    read("num_labels", config.num_labels);
    read_labels(config.num_labels, config.id2label);
    read("problem_type", config.problem_type);
    read("architectures", config.architectures);
  }
  const nlohmann::json& object() const { return object_; }
  std::string other_keys() const { return object_.dump(); }

 private:
  void read_labels(std::int64_t& count, std::map<std::int64_t, std::string>& names);
  template <class Take>
  void take(const char* key, Take take_value);

  nlohmann::json object_;
  std::string where_;
};

// Returns the name of a label from id2label, or LABEL_<id>.
std::string label_name_of(const std::map<std::int64_t, std::string>& names, std::int64_t id);
void write_labels(nlohmann::json& object, std::int64_t count,
                  const std::map<std::int64_t, std::string>& names);
// Writes a number, or null if it is unset.
nlohmann::json number_or_null(const std::optional<std::int64_t>& number);
// Writes ids of tokens: null, a number, or a list of several.
nlohmann::json token_ids_json(const std::vector<std::int64_t>& ids);

// Returns the keys that each model writes: other_keys, the type of the model and of its weights,
// and the keys of read_head.
template <class Config>
nlohmann::json config_object(const char* model_type, const Config& config) {
  nlohmann::json object = nlohmann::json::parse(config.other_keys);
  object["model_type"] = model_type;
  // Weights are written in float, regardless of the source. transformers loads them by this key.
  object.erase("torch_dtype");
  object["dtype"] = "float32";
  object["architectures"] = config.architectures;
  if (!config.problem_type.empty()) object["problem_type"] = config.problem_type;
  write_labels(object, config.num_labels, config.id2label);
  return object;
}

// Writes the keys of read_encoder.
template <class Config>
void write_encoder(nlohmann::json& object, const Config& config) {
  object["hidden_size"] = config.hidden_size;
  object["num_hidden_layers"] = config.num_hidden_layers;
  object["num_attention_heads"] = config.num_attention_heads;
  object["intermediate_size"] = config.intermediate_size;
  object["hidden_act"] = config.hidden_act;
  object["hidden_dropout_prob"] = config.hidden_dropout_prob;
  object["attention_probs_dropout_prob"] = config.attention_probs_dropout_prob;
  object["initializer_range"] = config.initializer_range;
  object["layer_norm_eps"] = config.layer_norm_eps;
}

// Refuses values that are out of range.
class ConfigChecks {
 public:
  explicit ConfigChecks(const std::string& where) : where_(where) {}

  void positive(const char* key, std::int64_t value) const;
  void rate(const char* key, double value) const;
  void not_negative(const char* key, double value) const;
  void activation(const char* key, const std::string& value) const;
  void layers_and_heads(std::int64_t layers, std::int64_t hidden, std::int64_t heads) const;
  // Checks the values of read_encoder.
  template <class Config>
  void encoder(const Config& config) const {
    positive("hidden_size", config.hidden_size);
    positive("num_attention_heads", config.num_attention_heads);
    positive("intermediate_size", config.intermediate_size);
    layers_and_heads(config.num_hidden_layers, config.hidden_size, config.num_attention_heads);
    rate("hidden_dropout_prob", config.hidden_dropout_prob);
    rate("attention_probs_dropout_prob", config.attention_probs_dropout_prob);
    not_negative("initializer_range", config.initializer_range);
    not_negative("layer_norm_eps", config.layer_norm_eps);
    activation("hidden_act", config.hidden_act);
  }
  // Checks the values of read_head.
  template <class Config>
  void head(const Config& config) const {
    positive("num_labels", config.num_labels);
    labels(config.num_labels, config.id2label, config.problem_type);
  }

 private:
  void labels(std::int64_t count, const std::map<std::int64_t, std::string>& names,
              const std::string& problem_type) const;

  const std::string& where_;
};

}  // namespace hasten
