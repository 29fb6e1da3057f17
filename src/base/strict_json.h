// File: base/strict_json.h (internal)
// Parses JSON that comes from outside of the process. nlohmann's parser accepts any depth, but its
// values are copied, compared and printed recursively, so a few hundred kilobytes of brackets crash
// the process. It also silently keeps only the last of two equal keys, and ignores everything after
// a NUL. These functions refuse all three.
//
//   try {
//     const Json config = read_strict_json<Json>("model/config.json");
//   } catch (const JsonError& error) {
//     throw DataError("models.config-json", {.what = "model/config.json", .got = error.what()});
//   }
//
// Texts must be UTF-8. A file may have at most 512 MiB, and an object of an ordered document at
// most 10,000 keys. Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include "base/unique_keys.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"

namespace hasten {

inline constexpr std::size_t kMaxJsonDepth = 1000;
inline constexpr std::uintmax_t kMaxJsonFileBytes = std::uintmax_t{512} << 20;
// nlohmann's ordered objects compare each key with all keys before it, so 100,000 keys take half a
// minute.
inline constexpr std::size_t kMaxOrderedKeys = 10'000;

struct JsonRules {
  std::size_t max_depth = kMaxJsonDepth;  // the most lists and objects that may enclose another
  bool unique_keys = true;                // if false, the last of equal keys counts
};

// The reason why a text is refused. what() completes the sentence "got ...".
class JsonError : public std::runtime_error {
 public:
  explicit JsonError(const std::string& what) : std::runtime_error(what) {}
  JsonError(const std::string& what, std::string detail, std::size_t byte)
      : std::runtime_error(what), detail_(std::move(detail)), byte_(byte) {}
  JsonError(const std::string& what, KeyPath repeated)
      : std::runtime_error(what), repeated_(std::move(repeated)) {}

  // The parser's explanation of invalid JSON, and the byte at which the parser stopped, counted
  // from 1.
  const std::string& detail() const noexcept { return detail_; }
  std::size_t byte() const noexcept { return byte_; }
  // The path of the second of two equal keys; empty if the reason is a different one.
  const KeyPath& repeated() const noexcept { return repeated_; }

 private:
  std::string detail_;
  std::size_t byte_ = 0;
  KeyPath repeated_;
};

// True if a list or an object is inside more than `most` others. The text need not be valid.
inline bool is_nested_deeper(std::string_view text, std::size_t max_depth) noexcept {
  std::size_t depth = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    switch (text[at]) {
      case '"':
        for (++at; at < text.size() && text[at] != '"'; ++at)
          if (text[at] == '\\') ++at;
        break;
      case '[':
      case '{':
        if (++depth > max_depth + 1) return true;
        break;
      case ']':
      case '}':
        if (depth > 0) --depth;
        break;
      default:
        break;
    }
  }
  return false;
}

namespace detail {

// Removes the text up to and including `end`, which precedes the parser's explanation: the error
// number and, for a syntax error, the position. Shortens the explanation, because it repeats the
// text that was read last.
inline std::string explanation_of(std::string message, std::string_view end) {
  if (const auto at = message.find(end); at != std::string::npos) message.erase(0, at + end.size());
  constexpr std::size_t kMaxLength = 300;
  return message.size() <= kMaxLength ? message : message.substr(0, kMaxLength) + "...";
}

template <class Json>
void refuse_repeated_keys(std::string_view text) {
  const auto throw_repeated_key = [](const KeyPath& path) {
    throw JsonError("the key \"" + path.back() + "\" twice in one object", path);
  };
  if constexpr (!std::is_same_v<Json, nlohmann::ordered_json>) {
    check_unique_keys<Json>(text, throw_repeated_key);
  } else {
    check_unique_keys<Json>(text, throw_repeated_key, [](std::size_t keys) {
      if (keys > kMaxOrderedKeys)
        throw JsonError(str("more than ", kMaxOrderedKeys, " keys in one object"));
    });
  }
}

}  // namespace detail

// Throws JsonError.
template <class Json = nlohmann::json>
Json parse_strict_json(std::string_view text, const JsonRules& rules = {}) {
  if (is_nested_deeper(text, rules.max_depth))
    throw JsonError(str("a list or an object inside of more than ", rules.max_depth, " others"));
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    throw JsonError(str("invalid JSON at byte ", nul + 1), "a NUL, which JSON does not allow",
                    nul + 1);
  }
  try {
    if (rules.unique_keys) detail::refuse_repeated_keys<Json>(text);
    return Json::parse(text.begin(), text.end());
  } catch (const typename Json::parse_error& error) {
    throw JsonError(str("invalid JSON at byte ", error.byte),
                    detail::explanation_of(error.what(), ": "), error.byte);
  } catch (const typename Json::exception& error) {  // a number that does not fit into any type
    throw JsonError(detail::explanation_of(error.what(), "] "));
  }
}

// Returns a discarded value for a text that parse_strict_json refuses.
template <class Json = nlohmann::json>
Json parse_json_or_discard(std::string_view text, const JsonRules& rules = {}) {
  try {
    return parse_strict_json<Json>(text, rules);
  } catch (const JsonError&) {
    return Json(Json::value_t::discarded);
  }
}

// Returns the content of a file that is expected to be JSON. Throws JsonError for a file that is
// too large, before it is read, and the errors of read_file.
inline std::string read_json_text(const std::filesystem::path& path) {
  std::error_code unknown;  // A pipe has no size. read_file reports a missing file.
  const std::uintmax_t size = std::filesystem::file_size(path, unknown);
  if (!unknown && size > kMaxJsonFileBytes)
    throw JsonError(str(size, " bytes, more than the ", kMaxJsonFileBytes, " of any JSON file"));
  return read_file(path);
}

// Throws JsonError and the errors of read_file.
template <class Json = nlohmann::json>
Json read_strict_json(const std::filesystem::path& path, const JsonRules& rules = {}) {
  return parse_strict_json<Json>(read_json_text(path), rules);
}

// Returns a discarded value for a file that read_strict_json refuses. Throws the errors of
// read_file.
template <class Json = nlohmann::json>
Json read_json_or_discard(const std::filesystem::path& path, const JsonRules& rules = {}) {
  try {
    return read_strict_json<Json>(path, rules);
  } catch (const JsonError&) {
    return Json(Json::value_t::discarded);
  }
}

}  // namespace hasten
