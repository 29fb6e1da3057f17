#include "hasten/models/bert_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& where, const std::string& key, std::string got,
                         std::string expected, std::string hint = "") {
  throw DataError("models.config-value", {.what = where + ", key " + key,
                                          .got = std::move(got),
                                          .expected = std::move(expected),
                                          .hint = std::move(hint)});
}

// Reads keys and removes them from the object; hasten does not know those left at the end.
class Reader {
 public:
  Reader(Json& object, const std::string& where) : object_(object), where_(where) {}

  void read(const char* key, std::int64_t& to) {
    take(key, [&](const Json& value) {
      if (!value.is_number_integer()) refuse(where_, key, value.dump(), "an integer");
      to = value.get<std::int64_t>();
    });
  }
  void read(const char* key, double& to) {
    take(key, [&](const Json& value) {
      if (!value.is_number()) refuse(where_, key, value.dump(), "a number");
      to = value.get<double>();
    });
  }
  void read(const char* key, std::optional<double>& to) {
    double number = 0;
    if (object_.contains(key) && !object_.at(key).is_null()) {
      read(key, number);
      to = number;
    } else {
      object_.erase(key);
    }
  }
  void read(const char* key, std::string& to) {
    take(key, [&](const Json& value) {
      if (!value.is_string()) refuse(where_, key, value.dump(), "a string");
      to = value.get<std::string>();
    });
  }
  void read(const char* key, bool& to) {
    take(key, [&](const Json& value) {
      if (!value.is_boolean()) refuse(where_, key, value.dump(), "true or false");
      to = value.get<bool>();
    });
  }
  void read(const char* key, std::vector<std::string>& to) {
    take(key, [&](const Json& value) {
      if (!value.is_array() || !std::all_of(value.begin(), value.end(),
                                            [](const Json& item) { return item.is_string(); })) {
        refuse(where_, key, value.dump(), "a list of strings");
      }
      to = value.get<std::vector<std::string>>();
    });
  }
  void read_labels(BertConfig& config) {
    take("id2label", [&](const Json& value) {
      if (!value.is_object())
        refuse(where_, "id2label", value.dump(), "an object of number to name");
      for (const auto& [id, name] : value.items()) {
        const bool number = !id.empty() && std::all_of(id.begin(), id.end(), [](unsigned char c) {
          return std::isdigit(c);
        });
        if (!number || id.size() > 9 || !name.is_string())
          refuse(where_, "id2label", "\"" + id + "\": " + name.dump(), "a number and a name");
        config.id2label[std::stoll(id)] = name.get<std::string>();
      }
      config.num_labels = static_cast<std::int64_t>(config.id2label.size());
    });
    object_.erase("label2id");
  }

 private:
  template <class Take>
  void take(const char* key, Take take_value) {
    const auto found = object_.find(key);
    if (found == object_.end()) return;
    if (!found->is_null()) take_value(*found);
    object_.erase(found);
  }

  Json& object_;
  const std::string& where_;
};

}  // namespace

BertConfig BertConfig::from_file(const std::filesystem::path& path) {
  return from_json(read_file(path), path.string());
}

BertConfig BertConfig::from_json(const std::string& text, const std::string& where) {
  Json object = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    throw DataError("models.config-json", {.what = where,
                                           .got = "text that is not a JSON object",
                                           .expected = "a model's config.json"});
  }
  std::string model_type;
  Reader reader(object, where);
  reader.read("model_type", model_type);
  if (model_type != "bert") {
    throw DataError("models.unknown-type", {.what = where + ", key model_type",
                                            .got = model_type.empty() ? "none" : model_type,
                                            .expected = "bert"});
  }
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
  if (object.contains("pad_token_id") && object.at("pad_token_id").is_null())
    config.pad_token_id = -1;
  reader.read("pad_token_id", config.pad_token_id);
  reader.read("classifier_dropout", config.classifier_dropout);
  reader.read("num_labels", config.num_labels);
  reader.read_labels(config);
  reader.read("problem_type", config.problem_type);
  reader.read("tie_word_embeddings", config.tie_word_embeddings);
  reader.read("architectures", config.architectures);
  for (const char* key : {"is_decoder", "add_cross_attention"}) {
    if (object.contains(key) && object.at(key) == true)
      refuse(where, key, "true", "false", "hasten implements BERT as an encoder only");
  }
  if (object.contains("position_embedding_type") &&
      object.at("position_embedding_type") != "absolute") {
    refuse(where, "position_embedding_type", object.at("position_embedding_type").dump(),
           "absolute");
  }
  config.other_keys = object.dump();
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

std::string BertConfig::label_name(std::int64_t id) const {
  const auto found = id2label.find(id);
  return found == id2label.end() ? str("LABEL_", id) : found->second;
}

std::string BertConfig::to_json() const {
  Json object = Json::parse(other_keys);
  object["model_type"] = "bert";
  // Weights are written in float, whatever the source held; transformers loads by this key.
  object.erase("torch_dtype");
  object["dtype"] = "float32";
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
  object["architectures"] = architectures;
  if (!problem_type.empty()) object["problem_type"] = problem_type;
  if (!id2label.empty() || num_labels != 2) {
    Json to_name = Json::object(), to_id = Json::object();
    for (std::int64_t id = 0; id < num_labels; ++id) {
      const std::string name = label_name(id);
      to_name[std::to_string(id)] = name;
      to_id[name] = id;
    }
    object["id2label"] = to_name;
    object["label2id"] = to_id;
  }
  return object.dump(2) + "\n";
}

void BertConfig::check(const std::string& where) const {
  const auto positive = [&](const char* key, std::int64_t value) {
    // Sizes above 2^31 cannot be meant, and their products must not overflow.
    if (value < 1 || value > (std::int64_t{1} << 31))
      refuse(where, key, std::to_string(value), "a positive size");
  };
  positive("vocab_size", vocab_size);
  positive("hidden_size", hidden_size);
  positive("num_attention_heads", num_attention_heads);
  positive("intermediate_size", intermediate_size);
  positive("max_position_embeddings", max_position_embeddings);
  positive("type_vocab_size", type_vocab_size);
  positive("num_labels", num_labels);
  if (num_hidden_layers < 0 || num_hidden_layers > 10000)
    refuse(where, "num_hidden_layers", std::to_string(num_hidden_layers), "0 to 10000");
  if (hidden_size % num_attention_heads != 0) {
    refuse(where, "hidden_size", std::to_string(hidden_size),
           str("a multiple of num_attention_heads (", num_attention_heads, ")"));
  }
  const auto rate = [&](const char* key, double value) {
    if (!(value >= 0 && value < 1)) refuse(where, key, str(value), "a probability in [0, 1)");
  };
  rate("hidden_dropout_prob", hidden_dropout_prob);
  rate("attention_probs_dropout_prob", attention_probs_dropout_prob);
  const auto not_negative = [&](const char* key, double value) {
    if (!(value >= 0 && std::isfinite(value))) refuse(where, key, str(value), "0 or more");
  };
  not_negative("initializer_range", initializer_range);
  not_negative("layer_norm_eps", layer_norm_eps);
  if (classifier_dropout) rate("classifier_dropout", *classifier_dropout);
  if (pad_token_id >= vocab_size)
    refuse(where, "pad_token_id", std::to_string(pad_token_id),
           str("below vocab_size (", vocab_size, ")"));
  static const std::vector<std::string> activations = {
      "gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish", "tanh"};
  if (std::find(activations.begin(), activations.end(), hidden_act) == activations.end()) {
    refuse(where, "hidden_act", hidden_act, join(activations, ", "));
  }
  static const std::vector<std::string> problems = {"", "regression", "single_label_classification",
                                                    "multi_label_classification"};
  if (std::find(problems.begin(), problems.end(), problem_type) == problems.end())
    refuse(where, "problem_type", problem_type, join(problems, ", "));
  for (const auto& [id, name] : id2label) {
    if (id < 0 || id >= num_labels)
      refuse(where, "id2label", str(id, ": ", name), str("ids 0 to ", num_labels - 1));
  }
}

}  // namespace hasten
