// File: base/json_depth.h (internal)
// Finds texts whose JSON is nested too deeply. nlohmann's parser takes any depth, but it copies and
// prints values recursively, so that a file of some hundred kilobytes of brackets would end the
// process.
//
//   if (is_nested_deeper(text, kDeepestJson)) fail("lists and objects in more than 1000 others");
//   const Json value = Json::parse(text);
//
// Thread rule: a pure function.
#pragma once

#include <cstddef>
#include <string_view>

namespace hasten {

inline constexpr std::size_t kDeepestJson = 1000;

// True if a list or an object is inside of more than `most` others. The text need not be valid.
inline bool is_nested_deeper(std::string_view text, std::size_t most) noexcept {
  std::size_t depth = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    switch (text[at]) {
      case '"':
        for (++at; at < text.size() && text[at] != '"'; ++at)
          if (text[at] == '\\') ++at;
        break;
      case '[':
      case '{':
        if (++depth > most + 1) return true;
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

}  // namespace hasten
