#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/strict_json.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "options/sources.h"
#include "options/yaml_document.h"

namespace hasten::config {
namespace {

// Limits the memory of a parse: yaml-cpp needs up to 130 bytes for each byte of a text.
constexpr std::size_t kMaxFileBytes = 128 << 10;

[[noreturn]] void throw_no_map(const std::string& where) {
  throw ConfigError("config.syntax",
                    {.what = where, .expected = "one map from option names to values"});
}

// --- YAML

// Scalars keep their text, so that `no` stays a word and 1e-5 becomes a number only if an option
// needs one. No option holds more than a list or a map of scalars. Deeper values are shown as {...}
// or [...] and not traversed, because aliases can make them endless.
std::string scalar(const YAML::Node& node) {
  if (node.IsScalar()) return node.Scalar();
  return node.IsMap() ? "{...}" : node.IsSequence() ? "[...]" : "null";
}

// Returns the value of a node. `places` receives the lines of a map's keys.
Value value_in(const YAML::Node& node, const std::string& name, const std::string& where,
               std::map<std::string, std::string>& places) {
  if (node.IsNull()) return std::monostate{};
  if (node.IsScalar()) return node.Scalar();
  if (node.IsSequence()) {
    std::vector<std::string> items;
    for (const YAML::Node& item : node) {
      if (!item.IsScalar())
        throw_syntax(where, "a list that contains " + scalar(item), "names in the list");
      items.push_back(item.Scalar());
    }
    return items;
  }
  Kwargs kwargs;
  for (const auto& entry : node) {
    const std::string key = scalar(entry.first), place = yaml_location(entry.first, name);
    const auto [first, inserted] = places.emplace(key, place);
    if (!inserted) throw_duplicate(place, key, first->second);
    if (!entry.second.IsNull()) kwargs.set(key, scalar(entry.second));
  }
  return kwargs;
}

// --- JSON

// Finds the places of the keys of a JSON text, because the parser does not report them.
class JsonKeyLocator {
 public:
  JsonKeyLocator(const std::string& text, const std::string& name) : text_(text), name_(name) {
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (text[at] == '\n') line_ends_.push_back(at);
    }
  }

  // Returns the positions of the keys of the first map that begins at or after `from`. Keys that
  // are written with escapes are left out.
  std::map<std::string, std::size_t> keys(std::size_t from = 0) const {
    std::map<std::string, std::size_t> positions;
    int depth = 0;
    for (std::size_t at = from; at < text_.size(); ++at) {
      if (text_[at] == '{' || text_[at] == '[') ++depth;
      if ((text_[at] == '}' || text_[at] == ']') && --depth == 0) break;
      if (text_[at] != '"') continue;
      std::size_t end = at + 1;
      while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
      const std::size_t next = text_.find_first_not_of(" \t\r\n", end + 1);
      const bool is_key = next != std::string::npos && text_[next] == ':';
      if (depth == 1 && is_key) positions.emplace(text_.substr(at + 1, end - at - 1), at);
      at = end;
    }
    return positions;
  }

  // Returns the file and the line of a key, or the first line of the file if the position is not
  // known.
  std::string place(const std::map<std::string, std::size_t>& positions,
                    const std::string& key) const {
    const auto found = positions.find(key);
    return place(found == positions.end() ? 0 : found->second);
  }
  std::string place(std::size_t position) const {
    const auto before = std::lower_bound(line_ends_.begin(), line_ends_.end(), position);
    return str(name_, ':', 1 + (before - line_ends_.begin()));
  }

 private:
  const std::string& text_;
  const std::string& name_;
  std::vector<std::size_t> line_ends_;
};

std::string json_scalar(const nlohmann::ordered_json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

Value value_in(const nlohmann::ordered_json& value) {
  if (value.is_null()) return std::monostate{};
  if (value.is_array()) {
    std::vector<std::string> items;
    for (const auto& item : value) items.push_back(json_scalar(item));
    return items;
  }
  if (!value.is_object()) return json_scalar(value);
  Kwargs kwargs;
  for (const auto& [key, item] : value.items()) {
    if (!item.is_null()) kwargs.set(key, json_scalar(item));
  }
  return kwargs;
}

nlohmann::ordered_json load_json(const std::string& text, const std::string& name,
                                 const JsonKeyLocator& places) {
  try {
    return parse_strict_json<nlohmann::ordered_json>(text);
  } catch (const JsonError& error) {
    if (!error.repeated().empty()) {
      std::size_t position = 0;
      for (const std::string& key : error.repeated()) {
        const auto positions = places.keys(position);
        const auto found = positions.find(key);
        position = found == positions.end() ? 0 : found->second;
      }
      throw_duplicate(name, error.repeated().back(), places.place(position));
    }
    if (error.byte() == 0) throw_syntax(name, error.what(), "a map from names to values");
    throw_syntax(places.place(std::min(error.byte(), text.size())),
                 "invalid JSON: " + error.detail(), "a JSON object");
  }
}

// --- Names of files

std::vector<std::string> files_of(const std::vector<Assignment>& assignments) {
  std::vector<std::string> files;
  for (const Assignment& assignment : assignments) {
    if (assignment.key != "config_file") continue;
    if (const auto* list = std::get_if<std::vector<std::string>>(&assignment.value)) {
      files.insert(files.end(), list->begin(), list->end());
    } else if (const auto* text = std::get_if<std::string>(&assignment.value)) {
      files.push_back(*text);
    }
  }
  return files;
}

}  // namespace

std::vector<Assignment> read_yaml(const std::string& text, const std::string& name) {
  const YAML::Node root = load_yaml_document(text, name);
  if (root.IsNull()) return {};
  if (!root.IsMap()) throw_no_map(name);
  std::vector<Assignment> assignments;
  std::map<std::string, std::string> places;
  for (const auto& entry : root) {
    const std::string where = yaml_location(entry.first, name);
    if (!entry.first.IsScalar()) throw_no_map(where);
    const std::string& key = entry.first.Scalar();
    const auto [first, inserted] = places.emplace(key, where);
    if (!inserted) throw_duplicate(where, key, first->second);
    Assignment& assignment = assignments.emplace_back();
    assignment.key = key;
    assignment.value = value_in(entry.second, name, where, assignment.places);
    assignment.origin = {Origin::Source::file, where};
  }
  return assignments;
}

std::vector<Assignment> read_json(const std::string& text, const std::string& name) {
  const JsonKeyLocator places(text, name);
  const nlohmann::ordered_json root = load_json(text, name, places);
  if (!root.is_object()) throw_no_map(name);
  const auto positions = places.keys();
  std::vector<Assignment> assignments;
  for (const auto& [key, value] : root.items()) {
    Assignment& assignment = assignments.emplace_back();
    assignment.key = key;
    assignment.value = value_in(value);
    assignment.origin = {Origin::Source::file, places.place(positions, key)};
    if (!value.is_object()) continue;
    const auto found = positions.find(key);
    const auto inner_positions = places.keys(found == positions.end() ? 0 : found->second);
    for (const auto& [inner, item] : value.items())
      assignment.places[inner] = places.place(inner_positions, inner);
  }
  return assignments;
}

std::string read_configuration(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad() || (file.fail() && !file.eof())) {
    const std::string reason = errno != 0 ? std::strerror(errno) : "it cannot be read";
    throw IoError(
        "io.cannot-read",
        {.what = "configuration file " + path, .got = reason, .expected = "a readable file"});
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() <= kMaxFileBytes) return text;
  throw ConfigError("config.file-too-large", {.what = "configuration file " + path,
                                              .got = "more than 128 KiB",
                                              .expected = "at most 128 KiB"});
}

std::vector<Assignment> read_option_file(const std::string& path) {
  const std::string text = read_configuration(path);
  return ends_with(path, ".json") ? read_json(text, path) : read_yaml(text, path);
}

std::vector<std::string> config_files(const std::vector<Assignment>& flags,
                                      const std::vector<Assignment>& variables) {
  auto files = files_of(flags);
  return files.empty() ? files_of(variables) : files;
}

}  // namespace hasten::config
