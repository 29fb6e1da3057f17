#include <algorithm>

#include "hasten/base/text.h"
#include "hasten/options/resolved_value.h"
#include "options/yaml_scalar.h"

namespace hasten::config {
namespace {

// A flag in a map is the text true or false.
std::string yaml_scalar_of(const KwargValue& value) {
  const std::string text = value.text();
  const bool is_bare = value.is_number() || text == "true" || text == "false";
  return is_bare ? text : yaml_scalar(text);
}

struct YamlWriter {
  std::string operator()(std::monostate) const { return "null"; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return str(value); }
  std::string operator()(const std::string& value) const { return yaml_scalar(value); }
  std::string operator()(const std::vector<std::string>& value) const {
    std::vector<std::string> items;
    for (const std::string& item : value) items.push_back(yaml_scalar(item));
    return str('[', join(items, ", "), ']');
  }
  std::string operator()(const Kwargs& value) const {
    std::vector<std::string> items;
    for (const auto& [name, item] : value.items())
      items.push_back(yaml_scalar(name) + ": " + yaml_scalar_of(item));
    return str('{', join(items, ", "), '}');
  }
};

std::string yaml_line(const ResolvedValue& value) {
  const bool unset = to_text(value.value) == "unset" && to_text(value.default_value) == "unset";
  const std::string text = unset ? "null" : std::visit(YamlWriter{}, value.value);
  return value.name + ": " + text;
}

}  // namespace

std::string resolved_text(const std::vector<ResolvedValue>& values, Show show) {
  std::vector<std::pair<std::string, std::string>> lines;
  std::size_t widest = 0;
  for (const ResolvedValue& value : values) {
    if (show == Show::changed && value.value == value.default_value) continue;
    lines.emplace_back(yaml_line(value), to_text(value.origin));
    widest = std::max(widest, std::min<std::size_t>(lines.back().first.size(), 48));
  }
  std::string out;
  for (auto& [line, origin] : lines) {
    if (line.size() < widest) line.resize(widest, ' ');
    out += line + "  # " + origin + "\n";
  }
  return out;
}

}  // namespace hasten::config
