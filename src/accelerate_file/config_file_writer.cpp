#include "accelerate_file/config_file_writer.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "options/sources.h"
#include "options/value.h"
#include "options/yaml_scalar.h"

namespace hasten::config {
namespace {

std::string scalar(const Document& value) {
  if (value.is_null()) return "null";
  if (!value.is_string()) return value.dump();
  return yaml_scalar(value.get<std::string>());
}

std::string inline_text(const Document& value) {
  if (value.is_array()) {
    std::vector<std::string> items;
    for (const Document& item : value) items.push_back(inline_text(item));
    return "[" + join(items, ", ") + "]";
  }
  if (value.is_object()) {
    std::vector<std::string> items;
    for (const auto& [key, item] : value.items())
      items.push_back(yaml_scalar(key) + ": " + inline_text(item));
    return "{" + join(items, ", ") + "}";
  }
  return scalar(value);
}

std::string yaml_lines(const Document& map, const std::string& indent) {
  std::string out;
  for (const auto& [key, value] : map.items()) {
    out += indent + yaml_scalar(key) + ":";
    if (value.is_object() && !value.empty()) {
      out += "\n" + yaml_lines(value, indent + "  ");
    } else {
      out += " " + inline_text(value) + "\n";
    }
  }
  return out;
}

// Returns the value that YAML 1.1 reads from a plain word.
Document typed(const std::string& word) {
  const std::string plain = lower(word);
  if (plain.empty() || plain == "~" || plain == "null") return nullptr;
  if (plain == "true" || plain == "yes" || plain == "on") return true;
  if (plain == "false" || plain == "no" || plain == "off") return false;
  if (const auto number = parse_integer(word)) return *number;
  if (const auto number = parse_finite(word)) return *number;
  return word;
}

// Converts the values of a file to a document. Counts them, because aliases can make a short file
// expand without end.
class DocumentReader {
 public:
  explicit DocumentReader(const std::string& path) : path_(path) {}

  Document read(const YAML::Node& node, bool words) {
    if (++values_ > kMaxValues) {
      throw ConfigError("config.syntax", {.what = str(path_, ':', node.Mark().line + 1),
                                          .got = str("more than ", kMaxValues, " values")});
    }
    if (node.IsNull()) return nullptr;
    if (node.IsScalar()) {
      const bool in_quotes = node.Tag() == "!";
      return in_quotes || words ? Document(node.Scalar()) : typed(node.Scalar());
    }
    if (node.IsSequence()) {
      Document list = Document::array();
      for (const YAML::Node& item : node) list.push_back(read(item, /*words=*/false));
      return list;
    }
    Document map = Document::object();
    for (const auto& entry : node) map[entry.first.Scalar()] = read(entry.second, /*words=*/false);
    return map;
  }

 private:
  static constexpr int kMaxValues = 1000;
  const std::string& path_;
  int values_ = 0;
};

}  // namespace

std::string yaml_text(const Document& document) { return yaml_lines(document, ""); }

std::string json_text(const Document& document) {
  return document.dump(2, ' ', false, Document::error_handler_t::replace) + "\n";
}

Document read_document(const std::string& text, const std::string& path,
                       const std::vector<std::string>& texts) {
  // Reports a file that is not a flat map, repeats a key or has a syntax error just as launch does.
  const bool json = ends_with(path, ".json");
  const auto keys = json ? read_json(text, path) : read_yaml(text, path);
  if (json) return Document::parse(text);
  const YAML::Node root = YAML::Load(text);
  Document document = Document::object();
  DocumentReader reader(path);
  for (const Assignment& key : keys) {
    const bool words = std::find(texts.begin(), texts.end(), key.key) != texts.end();
    document[key.key] = reader.read(root[key.key], words);
  }
  return document;
}

}  // namespace hasten::config
