#include "data/json_object.h"

#include "base/json_depth.h"
#include "base/unique_keys.h"
#include "data/text_lines.h"
#include "hasten/base/text.h"

namespace hasten::detail {
namespace {

using nlohmann::ordered_json;

// Reports equal keys as an error; nlohmann's parser keeps the last of them.
ordered_json parse_value(const std::string& text, const std::string& file, std::int64_t line) {
  if (is_nested_deeper(text, kDeepestJson)) {
    fail_text("text.json", file, line,
              str("a list or an object inside of more than ", kDeepestJson, " others"));
  }
  const auto check = unique_keys<ordered_json>([&](const KeyPath& path) {
    if (path.size() == 1)
      fail_text("text.json", file, line, "the key \"" + path.back() + "\" appears twice");
  });
  try {
    return ordered_json::parse(text, check);
  } catch (const ordered_json::parse_error& error) {
    fail_text("text.json", file, line, str("not valid JSON, at byte ", error.byte));
  } catch (const ordered_json::exception& error) {
    fail_text("text.json", file, line, std::string("not valid JSON: ") + error.what());
  }
}

}  // namespace

ordered_json parse_json_object(const std::string& text, const std::string& file,
                               std::int64_t line) {
  ordered_json value = parse_value(text, file, line);
  if (!value.is_object()) {
    fail_text("text.json", file, line, "the line", value.type_name(), "an object");
  }
  return value;
}

}  // namespace hasten::detail
