#include "models/config_reader.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/json_number.h"
#include "base/parse_number.h"
#include "base/strict_json.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {

using Json = nlohmann::json;

void throw_config_value(const std::string& where, const std::string& key, std::string got,
                        std::string expected, std::string hint) {
  throw DataError("models.config-value", {.what = where + ", key " + key,
                                          .got = std::move(got),
                                          .expected = std::move(expected),
                                          .hint = std::move(hint)});
}

std::string model_type_in(const std::string& text, const std::string& where) {
  std::string type;
  ConfigReader(text, where).read("model_type", type);
  return type;
}

ConfigReader::ConfigReader(const std::string& text, const std::string& where) : where_(where) {
  const auto throw_invalid = [&](const std::string& got) {
    throw DataError("models.config-json",
                    {.what = where,
                     .got = got,
                     .expected = "a model's config.json",
                     .hint = "name the folder of a model, or its config.json; if this is such a "
                             "file, fetch it again"});
  };
  try {
    object_ = parse_strict_json(text);
  } catch (const JsonError& error) {
    throw_invalid(error.what());
  }
  if (!object_.is_object()) throw_invalid("text that is not a JSON object");
}

template <class Take>
void ConfigReader::take(const char* key, Take take_value) {
  const auto found = object_.find(key);
  if (found == object_.end()) return;
  if (!found->is_null()) take_value(*found);
  object_.erase(found);
}

void ConfigReader::require_model_type(const std::string& expected) {
  std::string type;
  read("model_type", type);
  if (type == expected) return;
  throw DataError("models.unknown-type", {.what = where_ + ", key model_type",
                                          .got = type.empty() ? "none" : type,
                                          .expected = expected});
}

void ConfigReader::read(const char* key, std::int64_t& to) {
  take(key, [&](const Json& value) {
    const auto number = value.is_number_integer() ? whole_number_in(value) : std::nullopt;
    if (!number) throw_config_value(where_, key, value.dump(), "an integer");
    to = *number;
  });
}

void ConfigReader::read(const char* key, double& to) {
  take(key, [&](const Json& value) {
    if (!value.is_number()) throw_config_value(where_, key, value.dump(), "a number");
    to = value.get<double>();
  });
}

void ConfigReader::read(const char* key, std::optional<double>& to) {
  double number = 0;
  if (object_.contains(key) && !object_.at(key).is_null()) {
    read(key, number);
    to = number;
  } else {
    object_.erase(key);
  }
}

void ConfigReader::read(const char* key, std::optional<std::int64_t>& to) {
  if (!object_.contains(key)) return;
  to.reset();
  std::int64_t number = 0;
  if (!object_.at(key).is_null()) {
    read(key, number);
    to = number;
  } else {
    object_.erase(key);
  }
}

void ConfigReader::read(const char* key, std::string& to) {
  take(key, [&](const Json& value) {
    if (!value.is_string()) throw_config_value(where_, key, value.dump(), "a string");
    to = value.get<std::string>();
  });
}

void ConfigReader::read(const char* key, bool& to) {
  take(key, [&](const Json& value) {
    if (!value.is_boolean()) throw_config_value(where_, key, value.dump(), "true or false");
    to = value.get<bool>();
  });
}

void ConfigReader::read(const char* key, std::vector<std::string>& to) {
  take(key, [&](const Json& value) {
    const auto is_text = [](const Json& item) { return item.is_string(); };
    if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_text))
      throw_config_value(where_, key, value.dump(), "a list of strings");
    to = value.get<std::vector<std::string>>();
  });
}

void ConfigReader::read(const char* key, std::vector<std::int64_t>& to) {
  take(key, [&](const Json& value) {
    const auto is_integer = [](const Json& item) {
      return item.is_number_integer() && whole_number_in(item);
    };
    if (!value.is_array() || !std::all_of(value.begin(), value.end(), is_integer))
      throw_config_value(where_, key, value.dump(), "a list of integers");
    to = value.get<std::vector<std::int64_t>>();
  });
}

void ConfigReader::read_token_ids(const char* key, std::vector<std::int64_t>& to) {
  if (object_.contains(key) && object_.at(key).is_array()) return read(key, to);
  std::optional<std::int64_t> one;
  const bool is_given = object_.contains(key);
  read(key, one);
  if (one) {
    to = {*one};
  } else if (is_given) {
    to.clear();
  }
}

std::optional<ConfigReader> ConfigReader::read_object(const char* key) {
  std::optional<ConfigReader> reader;
  take(key, [&](const Json& value) {
    if (!value.is_object()) throw_config_value(where_, key, value.dump(), "an object");
    reader.emplace(value.dump(), where_ + ", key " + key);
  });
  return reader;
}

void ConfigReader::check_not_true(const char* key, const char* why) {
  if (object_.contains(key) && object_.at(key) == true)
    throw_config_value(where_, key, "true", "false", why);
}

void ConfigReader::read_labels(std::int64_t& count, std::map<std::int64_t, std::string>& names) {
  take("id2label", [&](const Json& value) {
    if (!value.is_object())
      throw_config_value(where_, "id2label", value.dump(), "an object of number to name");
    for (const auto& [id, name] : value.items()) {
      const auto number = parse_number<std::uint32_t>(id);
      if (!number || id.size() > 9 || !name.is_string())
        throw_config_value(where_, "id2label", "\"" + id + "\": " + name.dump(),
                           "a number and a name");
      names[*number] = name.get<std::string>();
    }
    count = static_cast<std::int64_t>(names.size());
  });
  object_.erase("label2id");
}

std::string label_name_of(const std::map<std::int64_t, std::string>& names, std::int64_t id) {
  const auto found = names.find(id);
  return found == names.end() ? str("LABEL_", id) : found->second;
}

void write_labels(Json& object, std::int64_t count,
                  const std::map<std::int64_t, std::string>& names) {
  if (names.empty() && count == 2) return;  // the default of the format
  Json to_name = Json::object(), to_id = Json::object();
  for (std::int64_t id = 0; id < count; ++id) {
    const std::string name = label_name_of(names, id);
    to_name[std::to_string(id)] = name;
    to_id[name] = id;
  }
  object["id2label"] = to_name;
  object["label2id"] = to_id;
}

Json number_or_null(const std::optional<std::int64_t>& number) {
  return number ? Json(*number) : Json();
}

Json token_ids_json(const std::vector<std::int64_t>& ids) {
  if (ids.empty()) return {};
  return ids.size() == 1 ? Json(ids.front()) : Json(ids);
}

void ConfigChecks::positive(const char* key, std::int64_t value) const {
  // Sizes above 2^31 cannot be meant, and their products must not overflow.
  if (value < 1 || value > (std::int64_t{1} << 31))
    throw_config_value(where_, key, std::to_string(value), "a positive size");
}

void ConfigChecks::rate(const char* key, double value) const {
  if (!(value >= 0 && value < 1))
    throw_config_value(where_, key, str(value), "a probability in [0, 1)");
}

void ConfigChecks::not_negative(const char* key, double value) const {
  if (!(value >= 0 && std::isfinite(value)))
    throw_config_value(where_, key, str(value), "0 or more");
}

void ConfigChecks::activation(const char* key, const std::string& value) const {
  static const std::vector<std::string> known = {
      "gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish", "tanh"};
  if (std::find(known.begin(), known.end(), value) == known.end())
    throw_config_value(where_, key, value, join(known, ", "));
}

void ConfigChecks::layers_and_heads(std::int64_t layers, std::int64_t hidden,
                                    std::int64_t heads) const {
  if (layers < 0 || layers > 10000)
    throw_config_value(where_, "num_hidden_layers", std::to_string(layers), "0 to 10000");
  if (hidden % heads != 0) {
    throw_config_value(where_, "hidden_size", std::to_string(hidden),
                       str("a multiple of num_attention_heads (", heads, ")"));
  }
}

void ConfigChecks::labels(std::int64_t count, const std::map<std::int64_t, std::string>& names,
                          const std::string& problem_type) const {
  static const std::vector<std::string> problems = {"", "regression", "single_label_classification",
                                                    "multi_label_classification"};
  if (std::find(problems.begin(), problems.end(), problem_type) == problems.end())
    throw_config_value(where_, "problem_type", problem_type, join(problems, ", "));
  for (const auto& [id, name] : names) {
    if (id < 0 || id >= count)
      throw_config_value(where_, "id2label", str(id, ": ", name), str("ids 0 to ", count - 1));
  }
}

}  // namespace hasten
