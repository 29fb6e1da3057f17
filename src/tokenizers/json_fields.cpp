#include "tokenizers/json_fields.h"

#include <utility>

#include "base/strict_json.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"

namespace hasten::tokenizers {
namespace {

// Formats a value for a message; long values are shortened.
std::string shortened_json(const Json& value) {
  if (value.is_array() || value.is_object()) return str(value.type_name(), " of ", value.size());
  constexpr std::size_t max_size = 60;
  std::string text = value.dump(-1, ' ', true);
  if (text.size() > max_size) text = text.substr(0, max_size) + "...";
  return text;
}

[[noreturn]] void throw_wrong_type(const Json& value, const std::string& where,
                                   const std::string& expected) {
  throw DataError("tokenizers.wrong-type",
                  {.what = where, .got = shortened_json(value), .expected = expected});
}

}  // namespace

Json parse_json(const std::filesystem::path& file) {
  try {
    // For a vocabulary, the check of the keys would take as long as the rest.
    return read_strict_json<Json>(file, {.unique_keys = false});
  } catch (const JsonError& error) {
    throw DataError("tokenizers.bad-json",
                    {.what = file.string(),
                     .got = error.what(),
                     .expected = "the file of a tokenizer",
                     .hint = "check that the download is complete and is not a Git LFS pointer"});
  }
}

Fields::Fields(const Json& value, std::string where) : value_(&value), where_(std::move(where)) {
  if (!value.is_object()) throw_wrong_type(value, where_, "an object");
}

const Json* Fields::find(const char* key) const {
  const auto found = value_->find(key);
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

const Json& Fields::at(const char* key) const {
  if (const Json* found = find(key)) return *found;
  throw DataError("tokenizers.missing-key", {.what = str(where_, " lacks \"", key, "\"")});
}

std::string Fields::text(const char* key) const { return text_of(at(key), where_ + "." + key); }
bool Fields::flag(const char* key) const { return flag_of(at(key), where_ + "." + key); }

std::int64_t Fields::integer(const char* key, std::int64_t low, std::int64_t high) const {
  return integer_of(at(key), low, high, where_ + "." + key);
}

const Json& Fields::list(const char* key) const {
  const Json& value = at(key);
  if (!value.is_array()) throw_wrong_type(value, where_ + "." + key, "a list");
  return value;
}

std::string Fields::text_of(const Json& value, const std::string& where) {
  if (!value.is_string()) throw_wrong_type(value, where, "a string");
  return value.get<std::string>();
}

bool Fields::flag_of(const Json& value, const std::string& where) {
  if (!value.is_boolean()) throw_wrong_type(value, where, "true or false");
  return value.get<bool>();
}

std::int64_t Fields::integer_of(const Json& value, std::int64_t low, std::int64_t high,
                                const std::string& where) {
  const std::string expected = str("an integer from ", low, " to ", high);
  if (!value.is_number_integer()) throw_wrong_type(value, where, expected);
  // An unsigned value that does not fit an int64 is also above `high`.
  const bool huge =
      value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(high);
  if (huge || value.get<std::int64_t>() < low || value.get<std::int64_t>() > high)
    throw_wrong_type(value, where, expected);
  return value.get<std::int64_t>();
}

void Fields::throw_unsupported(const char* code, const std::string& what,
                               const std::string& expected) const {
  throw DataError(code, {.what = where_,
                         .got = what,
                         .expected = expected,
                         .hint = "BertTokenizer supports only the tokenizers of BERT models"});
}

}  // namespace hasten::tokenizers
