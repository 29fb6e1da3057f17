#include "options/messages.h"

#include <algorithm>
#include <array>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::config {
namespace {

std::string upper(std::string text) {
  for (char& c : text) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return text;
}

// Names that people know from other programs and that are too far from hasten's names for an edit
// distance to find.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kForeignNames = {{
    {"lr", "learning_rate"},
    {"wd", "weight_decay"},
    {"epochs", "num_train_epochs"},
    {"batch_size", "per_device_train_batch_size"},
    {"eval_batch_size", "per_device_eval_batch_size"},
    {"train_file", "data"},
    {"validation_file", "eval_data"},
    {"model_name_or_path", "model"},
    {"max_seq_length", "max_length"},
}};

}  // namespace

std::string key_as_written(const Origin& origin, const std::string& key) {
  switch (origin.source) {
    case Origin::Source::flag:
      return "--" + key;
    case Origin::Source::environment:
      // torchrun's variables have names of their own.
      return starts_with(origin.where, "PET_") ? origin.where : "HASTEN_" + upper(key);
    default:
      return key;
  }
}

std::string key_with_place(const Origin& origin, const std::string& key) {
  const bool names_itself = origin.source != Origin::Source::file;
  return names_itself ? key_as_written(origin, key) : origin.where + ": " + key;
}

std::optional<std::string> suggestion(const OptionTable& table, const std::string& key) {
  for (const auto& [foreign, name] : kForeignNames) {
    if (foreign == key && table.find(name)) return std::string(name);
  }
  return nearest(key, table.names());
}

void throw_unknown(const OptionTable& table, const std::string& key, const Origin& origin) {
  std::string plain = lower(key);
  std::replace(plain.begin(), plain.end(), '-', '_');
  const char* kind = origin.source == Origin::Source::flag ? "unknown argument " : "unknown key ";
  const std::string where = origin.source == Origin::Source::file ? origin.where + ": " : "";
  const auto near = suggestion(table, plain);
  throw ConfigError("config.unknown-key",
                    {.what = where + kind + key_as_written(origin, key),
                     .hint = near ? "did you mean " + key_as_written(origin, *near) + "?"
                                  : "--help lists every name"});
}

void throw_not_supported(const std::string& what, const std::string& hint) {
  throw ConfigError("config.not-supported", {.what = what + " is not supported yet", .hint = hint});
}

}  // namespace hasten::config
