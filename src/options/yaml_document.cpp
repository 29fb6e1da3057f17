#include "options/yaml_document.h"

#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <sstream>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::config {
namespace {

class IgnoreEvents : public YAML::EventHandler {
  using Mark = YAML::Mark;
  using Text = const std::string&;
  using Anchor = YAML::anchor_t;
  using Style = YAML::EmitterStyle::value;
  void OnDocumentStart(const Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const Mark&, Anchor) override {}
  void OnAlias(const Mark&, Anchor) override {}
  void OnScalar(const Mark&, Text, Anchor, Text) override {}
  void OnSequenceStart(const Mark&, Text, Anchor, Style) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const Mark&, Text, Anchor, Style) override {}
  void OnMapEnd() override {}
};

// Returns true if anything follows the first document. YAML::LoadAll would report it too, but it
// never returns for a text that begins with a comma. The comment after the text makes yaml-cpp
// refuse a text whose end is inside of quotes, or whose last key has no colon. Without it, yaml-cpp
// completes such a text and reports nothing.
bool has_second_document(const std::string& text) {
  std::istringstream stream(text + "\n#");
  YAML::Parser parser(stream);
  IgnoreEvents ignore;
  return parser.HandleNextDocument(ignore) && parser.HandleNextDocument(ignore);
}

// Returns the index of the last line of a text.
int last_line(const std::string& text) {
  const auto breaks = std::count(text.begin(), text.end(), '\n');
  return static_cast<int>(ends_with(text, "\n") ? breaks - 1 : breaks);
}

}  // namespace

void throw_syntax(const std::string& where, const std::string& got, const std::string& expected) {
  throw ConfigError("config.syntax", {.what = where, .got = got, .expected = expected});
}

void throw_duplicate(const std::string& where, const std::string& key, const std::string& first) {
  throw ConfigError("config.duplicate-key", {.what = where + ": " + key + " is given twice",
                                             .hint = "the first is at " + first});
}

std::string yaml_location(const YAML::Node& node, const std::string& name) {
  return str(name, ':', node.Mark().line + 1);
}

YAML::Node load_yaml_document(const std::string& text, const std::string& name) {
  try {
    if (has_second_document(text)) throw_syntax(name, "more than one YAML document", "one");
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    if (error.mark.is_null()) throw_syntax(name, "invalid YAML: " + error.msg, "a YAML map");
    const int line = std::min(error.mark.line, last_line(text));
    throw_syntax(str(name, ':', line + 1), "invalid YAML: " + error.msg, "a YAML map");
  }
}

}  // namespace hasten::config
