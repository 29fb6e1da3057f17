// File: tokenizers/json_fields.h
// Typed access to the JSON files of a tokenizer. A value of the wrong type or out of range throws a
// DataError that names the file and the place in it.
//
//   const Json root = parse_json(file);
//   const Fields model(root, file.string() + ": model");
//   const std::string unknown = model.text("unk_token");
//   const auto most = model.integer("max_input_chars_per_word", 0, 1 << 20);
//
// Thread rule: only reads; any thread. Throws IoError, and DataError "tokenizers.bad-json",
// "tokenizers.wrong-type" or "tokenizers.missing-key".
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::tokenizers {

using Json = nlohmann::json;

Json parse_json(const std::filesystem::path& file);

class Fields {
 public:
  // Every message begins with `where`. `value` must be an object and outlive this Fields.
  Fields(const Json& value, std::string where);

  const std::string& where() const noexcept { return where_; }
  // Returns null if the key is missing or its value is null.
  const Json* find(const char* key) const;
  // Throws DataError "tokenizers.missing-key" if find() returns null.
  const Json& at(const char* key) const;
  Fields object(const char* key) const { return {at(key), where_ + "." + key}; }

  std::string text(const char* key) const;
  bool flag(const char* key) const;
  // `low` and `high` are inclusive.
  std::int64_t integer(const char* key, std::int64_t low, std::int64_t high) const;
  const Json& list(const char* key) const;

  // These do the same for a value without a key of its own, such as an element of a list.
  static std::string text_of(const Json& value, const std::string& where);
  static bool flag_of(const Json& value, const std::string& where);
  static std::int64_t integer_of(const Json& value, std::int64_t low, std::int64_t high,
                                 const std::string& where);

  // Throws DataError `code`, which says that BertTokenizer does not support the type or value
  // `what`.
  [[noreturn]] void throw_unsupported(const char* code, const std::string& what,
                                      const std::string& expected) const;

 private:
  const Json* value_;
  std::string where_;
};

// Returns the value for the word under `key`. Throws DataError "tokenizers.wrong-type" if the word
// is not one of `choices`.
template <class Value>
Value choose(const Fields& fields, const char* key,
             std::initializer_list<std::pair<const char*, Value>> choices) {
  const std::string found = fields.text(key);
  std::vector<std::string> names;
  for (const auto& [name, value] : choices) {
    if (found == name) return value;
    names.push_back(str("\"", name, "\""));
  }
  throw DataError("tokenizers.wrong-type", {.what = str(fields.where(), ".", key),
                                            .got = "\"" + found + "\"",
                                            .expected = join(names, " or ")});
}

}  // namespace hasten::tokenizers
