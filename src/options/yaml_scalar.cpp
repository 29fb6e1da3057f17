#include "options/yaml_scalar.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "hasten/base/text.h"

namespace hasten::config {
namespace {

bool is_yaml_word(std::string_view text) {
  static constexpr std::array<std::string_view, 9> words = {"null", "true", "false", "yes", "no",
                                                            "on",   "off",  "y",     "n"};
  return std::find(words.begin(), words.end(), lower(text)) != words.end();
}

// True for text that needs no quotes. It begins with a letter, / or _, so it is no number and no
// date, and nothing in it has a meaning in YAML.
bool needs_no_quotes(std::string_view text) {
  static constexpr std::string_view letters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ/_";
  static constexpr std::string_view others = "0123456789.+-";
  if (text.empty() || is_yaml_word(text) || letters.find(text[0]) == text.npos) return false;
  return std::all_of(text.begin(), text.end(), [](char letter) {
    return letters.find(letter) != letters.npos || others.find(letter) != others.npos;
  });
}

}  // namespace

std::string yaml_scalar(const std::string& text) {
  if (needs_no_quotes(text)) return text;
  const bool simple = std::all_of(text.begin(), text.end(), [](unsigned char letter) {
    return letter >= ' ' && letter != '\'' && letter != 0x7f;
  });
  if (simple) return "'" + text + "'";
  // YAML reads a text in the quotes of JSON as JSON does.
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace hasten::config
