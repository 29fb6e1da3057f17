// The cases of yaml-test-suite (https://github.com/yaml/yaml-test-suite, data-2022-01-17), whose
// texts and licence are in options/data/yaml_test_suite.
//
// hasten reads configurations with yaml-cpp, which does not accept all of YAML. So a valid text may
// also be refused, with the place and the reason. A text that is read has the content that the
// suite gives, except for the texts of the tables below.
#include <doctest/doctest.h>
#include <yaml-cpp/yaml.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "accelerate_file/launch_file.h"
#include "base/strict_json.h"
#include "hasten/search/detail/search_space.h"
#include "options/sources.h"
#include "options/value.h"
#include "options/yaml_document.h"
#include "unit/code_of.h"
#include "unit/options/support.h"
#include "unit/peak_memory.h"

namespace options_yaml_test_suite_test {

using namespace hasten;
using namespace hasten::test;
using Json = nlohmann::json;

namespace {

// The invalid texts that yaml-cpp accepts. It reads the content that their author meant.
const std::map<std::string, std::string> accepted_although_invalid = {
    {"9C9N", "lines of a list in brackets are not indented"},
    {"9JBA", "a comment follows a list without a space"},
    {"9MAG", "a list in brackets begins with a comma"},
    {"9MMA", "a directive without a document"},
    {"B63P", "a directive without a document"},
    {"CTN5", "a list in brackets ends with two commas"},
    {"CVW2", "a comment follows a comma without a space"},
    {"DK95/01", "a line of a quoted text is indented by a tab"},
    {"G5U8", "a list in brackets has dashes"},
    {"G9HC", "an anchor is not indented"},
    {"H7J7", "a tag is not indented"},
    {"HRE5", "a quote is escaped in double quotes by \\'"},
    {"QB6E", "lines of a quoted text are not indented"},
    {"S98Z", "the first blank lines of a text are indented differently"},
    {"SU5Z", "a comment follows a quoted text without a space"},
    {"X4QW", "a comment follows > without a space"},
    {"Y79Y/003", "a line of a list in brackets is indented by a tab"},
    {"YJV2", "a list in brackets has a dash"}};

// The valid texts whose values yaml-cpp reads with fewer line breaks.
const std::map<std::string, std::string> read_differently = {
    {"L24T/01", "the last line of a block of text has only a space, and no line break"},
    {"NAT4", "a text in quotes consists of line breaks only"}};

struct YamlCase {
  std::string id, yaml;
  bool invalid;
  Json content;  // discarded if JSON cannot express it
};

const std::vector<YamlCase>& cases() {
  static const std::vector<YamlCase> all = [] {
    std::vector<YamlCase> read;
    const Json file =
        read_strict_json(HASTEN_TEST_DATA "/unit/options/data/yaml_test_suite/cases.json");
    for (const Json& each : file) {
      read.push_back({each.at("id"), each.at("yaml"), each.at("invalid"),
                      parse_json_or_discard(each.value("json", ""))});
    }
    return read;
  }();
  return all;
}

void collect_texts(const Json& value, std::set<std::string>& texts) {
  if (value.is_string()) texts.insert(value.get<std::string>());
  if (!value.is_structured()) return;
  for (const auto& [key, item] : value.items()) {
    if (value.is_object()) texts.insert(key);
    collect_texts(item, texts);
  }
}

// Checks the keys of a map and its values that are texts.
void check_content(const YamlCase& each, const std::vector<config::Assignment>& read) {
  CHECK(read.size() == each.content.size());
  for (const config::Assignment& assignment : read) {
    CAPTURE(assignment.key);
    const auto expected = each.content.find(assignment.key);
    REQUIRE(expected != each.content.end());
    if (!expected->is_string()) continue;
    const auto* text = std::get_if<std::string>(&assignment.value);
    REQUIRE(text != nullptr);
    if (!read_differently.contains(each.id)) CHECK(*text == expected->get<std::string>());
  }
}

}  // namespace

TEST_CASE("yaml-test-suite: invalid texts are refused, and valid ones read or refused with why") {
  int valid = 0, invalid = 0, refused = 0;
  for (const YamlCase& each : cases()) {
    CAPTURE(each.id);
    const CaughtError error = error_of([&] { config::load_yaml_document(each.yaml, "file.yaml"); });
    if (each.invalid) {
      ++invalid;
      CHECK((error.code == "no error") == accepted_although_invalid.contains(each.id));
    } else {
      ++valid;
      refused += error.code == "no error" ? 0 : 1;
    }
    if (error.code == "no error") continue;
    CHECK(error.code == "config.syntax");
    CHECK(error.text.starts_with("file.yaml:"));
    CHECK(error.text.size() > std::string("file.yaml:1: ").size());
  }
  CHECK(invalid == 94);
  CHECK(valid == 308);
  CHECK(refused <= 40);
}

TEST_CASE("yaml-test-suite: a configuration is a map with the content that the suite gives") {
  int maps = 0;
  for (const YamlCase& each : cases()) {
    CAPTURE(each.id);
    std::vector<config::Assignment> read;
    const std::string code = code_of([&] { read = config::read_yaml(each.yaml, "file.yaml"); });
    if (code != "none") CHECK((code == "config.syntax" || code == "config.duplicate-key"));
    if (code != "none" || each.invalid || each.content.is_discarded()) continue;
    // A text without a document is an empty configuration.
    if (!each.content.is_object()) {
      CHECK(each.content.is_null());
      CHECK(read.empty());
      continue;
    }
    ++maps;
    check_content(each, read);
  }
  CHECK(maps >= 90);
}

TEST_CASE("yaml-test-suite: no text crashes a reader of YAML or takes much memory") {
  const long before = peak_memory_kib();
  for (const YamlCase& each : cases()) {
    CAPTURE(each.id);
    static_cast<void>(code_of([&] { config::updated_launch_file(each.yaml, "file.yaml"); }));
    const TemporaryFile file("space.yaml", each.yaml);
    CHECK(code_of([&] { read_search_space(file.path()); }) != "none");
  }
  CHECK(peak_memory_kib() - before < (16 << 10) * kMemoryPerByte);
}

TEST_CASE("yaml-test-suite: all texts of the suite come back from the writer of scalars") {
  std::set<std::string> texts;
  for (const YamlCase& each : cases()) {
    texts.insert(each.yaml);
    if (!each.content.is_discarded()) collect_texts(each.content, texts);
  }
  CHECK(texts.size() > 600);
  for (const std::string& text : texts) {
    CAPTURE(text);
    const std::string scalar = config::yaml_scalar(text);
    CHECK(YAML::Load(scalar).Scalar() == text);
    // As a key and a value of a line, and inside of brackets.
    const YAML::Node line = YAML::Load(scalar + ": " + scalar + "\n");
    REQUIRE(line.IsMap());
    CHECK(line.begin()->first.Scalar() == text);
    CHECK(line.begin()->second.Scalar() == text);
    const YAML::Node list = YAML::Load("[" + scalar + ", {" + scalar + ": 1}]");
    CHECK(list[0].Scalar() == text);
    CHECK(list[1].begin()->first.Scalar() == text);
  }
}

TEST_CASE("yaml-test-suite: a text that ends inside of quotes or after a key is refused") {
  const auto error = [](const std::string& text) {
    return error_of([&] { config::read_yaml(text, "run.yaml"); }).text;
  };
  CHECK(error("output_dir: \"out\nseed: 3\n") ==
        "run.yaml:2: got invalid YAML: illegal EOF in scalar, expected a YAML map");
  CHECK(error("output_dir: 'out\nseed: 3\n\n  ") ==
        "run.yaml:4: got invalid YAML: illegal EOF in scalar, expected a YAML map");
  CHECK(error("seed: 3\noutput_dir\n") ==
        "run.yaml:2: got invalid YAML: end of map not found, expected a YAML map");
  // The end of a valid text may be anything else.
  for (const char* text : {"", "# none\n", "seed: 3", "seed:", "seed: |\n  a\n\n", "seed: >", "---",
                           "seed: 3\n...\n", "seed: \"3\"\n# a \" in a comment"}) {
    CAPTURE(text);
    CHECK(error(text) == "");
  }
}

}  // namespace options_yaml_test_suite_test
