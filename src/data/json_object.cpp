#include "data/json_object.h"

#include "base/strict_json.h"
#include "data/text_lines.h"
#include "hasten/base/text.h"

namespace hasten::detail {
namespace {

using nlohmann::ordered_json;

ordered_json parse_value(const std::string& text, const std::string& file, std::int64_t line) {
  try {
    return parse_strict_json<ordered_json>(text);
  } catch (const JsonError& error) {
    fail_text("text.json", file, line, error.what());
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
