#include "data/flat_json.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "hasten/data/row_random.h"

namespace flat_json_test {

using hasten::detail::read_flat_object;
using Texts = std::vector<std::string>;

namespace {

const Texts kNames = {"text", "label"};

// The fields as the general reader returns them, or nothing if the line is not valid.
std::optional<Texts> parsed(const std::string& line) {
  const auto json = nlohmann::ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.size() != 2) return std::nullopt;
  Texts fields;
  for (const std::string& name : kNames) {
    if (!json.contains(name)) return std::nullopt;
    const auto& value = json.at(name);
    fields.push_back(value.is_string() ? value.get<std::string>()
                     : value.is_null() ? ""
                                       : value.dump());
  }
  return fields;
}

}  // namespace

TEST_CASE("flat JSON: lines of the usual form are read") {
  for (const char* line :
       {R"({"text": "a b", "label": 1})", R"({"text":"","label":-12})",
        R"(  { "text" : "\"\\\/\b\f\n\r\t" , "label" : true } )", R"({"text": null, "label": 0})",
        "{\"text\": \"caf\xC3\xA9\", \"label\": false}",
        R"({"text": "x", "label": 123456789012345678})"}) {
    Texts fields;
    CHECK_MESSAGE(read_flat_object(line, kNames, fields), line);
    CHECK_MESSAGE(fields == parsed(line), line);
  }
}

TEST_CASE("flat JSON: other lines are left to the general reader") {
  for (const char* line : {R"({"label": 1, "text": "a"})",
                           R"({"text": "a"})",
                           R"({"text": "a", "label": 1, "x": 2})",
                           R"({"text": "a", "label": 1.5})",
                           R"({"text": "a", "label": -0})",
                           R"({"text": "a", "label": 01})",
                           R"({"text": "a", "label": 1e3})",
                           R"({"text": "a", "label": 1234567890123456789})",
                           R"({"text": "\u00e9", "label": 1})",
                           R"({"text": ["a"], "label": 1})",
                           "{\"text\": \"a\tb\", \"label\": 1}",
                           R"({"text": "a", "label": 1,})",
                           R"({"text": "a", "label": 1} x)",
                           R"({"text": "a", "label": tru})",
                           R"({"text": "a", "label": -})",
                           R"({"text": "a)",
                           "{",
                           "",
                           R"({"text": "a" "label": 1})",
                           R"({"text" "a", "label": 1})",
                           R"({"text": "\)"}) {
    Texts fields;
    CHECK_MESSAGE(!read_flat_object(line, kNames, fields), line);
  }
}

TEST_CASE("flat JSON: each line that is read is valid and has the fields of the general reader") {
  const std::string line = R"({"text": "a \"b\" \\ c", "label": -120})";
  const std::string alphabet = "\"\\{}:,0123456789-+.eE truefalsn\t\x01u[]labtx";
  hasten::RowRandom random(7);
  int read = 0;
  for (int trial = 0; trial < 200000; ++trial) {
    std::string changed = line;
    for (std::int64_t changes = 1 + random.below(3); changes > 0; --changes) {
      const auto at =
          static_cast<std::size_t>(random.below(static_cast<std::int64_t>(changed.size())));
      const char other = alphabet[static_cast<std::size_t>(
          random.below(static_cast<std::int64_t>(alphabet.size())))];
      const auto kind = random.below(3);
      if (kind == 0) changed[at] = other;
      if (kind == 1) changed.insert(at, 1, other);
      if (kind == 2) changed.erase(at, 1);
    }
    Texts fields;
    if (!read_flat_object(changed, kNames, fields)) continue;
    ++read;
    if (fields != parsed(changed)) FAIL_CHECK(changed);
  }
  CHECK(read > 1000);
}

}  // namespace flat_json_test
