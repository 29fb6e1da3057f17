#include "options/value.h"

#include <yaml-cpp/yaml.h>

#include "options/sources.h"
#include "unit/options/support.h"

namespace options_value_test {

using namespace hasten;
using namespace hasten::test;

TEST_CASE("yaml scalar: a text that YAML could misread is quoted") {
  for (const char* text :
       {"no",   "Yes",  "on",           "OFF",        "y",        "N",    "true", "False", "null",
        "~",    "",     "12",           "-3",         "+4",       "1e-3", "0x1F", "0o17",  "1_000",
        ".5",   ".inf", ".nan",         "2026-11-23", "12:30:45", "<<",   "=",    "a b",   "a: b",
        "a #b", "- a",  "[a",           "{a",         "*a",       "&a",   "!a",   "%a",    "@a",
        "`a",   "it's", "say \"it's\"", "two\nlines", "tab\t"}) {
    CAPTURE(text);
    const std::string scalar = config::yaml_scalar(text);
    const char first = scalar.front();
    CHECK((first == '\'' || first == '"'));
    CHECK(YAML::Load(scalar).Scalar() == text);
    CHECK_FALSE(YAML::Load(scalar).IsNull());
  }
}

TEST_CASE("yaml scalar: characters that YAML does not allow or reads as line breaks are escaped") {
  // PyYAML refuses or folds these characters.
  const std::vector<std::pair<std::string, std::string>> escaped = {
      {"a\x7f", "\"a\\u007f\""},
      {"a\xC2\x85", "\"a\\u0085\""},
      {"\xC2\x9F'", "\"\\u009f'\""},
      {"a\xE2\x80\xA8z", "\"a\\u2028z\""},
      {"a\xE2\x80\xA9", "\"a\\u2029\""},
      {"\xEF\xBB\xBF", "\"\\ufeff\""},
      {"\xEF\xBF\xBE\xEF\xBF\xBF", "\"\\ufffe\\uffff\""}};
  for (const auto& [text, scalar] : escaped) {
    CAPTURE(scalar);
    CHECK(config::yaml_scalar(text) == scalar);
    CHECK(YAML::Load(scalar).Scalar() == text);
  }
  CHECK(config::yaml_scalar("\xC3\xA9 \xF0\x9F\x98\x80") == "'\xC3\xA9 \xF0\x9F\x98\x80'");
  CHECK(config::yaml_scalar("a\xFF/\n") == "\"a\xEF\xBF\xBD/\\n\"");
  CHECK(config::yaml_scalar("a \xFF") == "'a \xEF\xBF\xBD'");
}

TEST_CASE("yaml scalar: names and paths need no quotes") {
  for (const char* text : {"bert-base", "/data/train.tsv", "_x", "a.b+c", "none", "steps"})
    CHECK(config::yaml_scalar(text) == text);
}

TEST_CASE("yaml scalar: a text comes back from a list of resolved values as the same text") {
  const auto run = parse_with_model({"--text_column", "no", "--label_column", "123"});
  const std::string text = resolved_text(run, config::ValueFilter::changed);
  CHECK(contains(text, "text_column: 'no'"));
  CHECK(contains(text, "label_column: '123'"));
  const TemporaryFile file("again.yaml", text);
  const auto again = parse({"--config_file", file.path()});
  CHECK(again.options.text_column == "no");
  CHECK(again.options.label_column == "123");
}

}  // namespace options_value_test
