#include "base/strict_json.h"

#include <doctest/doctest.h>

#include <string>

#include "base/json_number.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "options/sources.h"
#include "processor_time.h"
#include "track/logged_runs.h"
#include "unit/code_of.h"
#include "unit/json_test_suite.h"
#include "unit/peak_memory.h"

namespace strict_json_test {

using namespace hasten;
using Json = nlohmann::json;

namespace {

std::string nested(std::size_t levels) {
  return std::string(levels, '[') + "1" + std::string(levels, ']');
}

std::string refusal(const std::string& text, const JsonRules& rules = {}) {
  try {
    parse_strict_json(text, rules);
  } catch (const JsonError& error) {
    return error.what();
  }
  return "none";
}

template <class AnyJson>
bool is_accepted(const std::string& text, const JsonRules& rules) {
  try {
    static_cast<void>(parse_strict_json<AnyJson>(text, rules));
    return true;
  } catch (const JsonError& error) {
    CHECK_FALSE(std::string(error.what()).empty());
    return false;
  }
}

bool has_key_twice(const test::JsonText& text) {
  return text.name.starts_with("y_object_duplicated_key");
}

}  // namespace

TEST_CASE("strict JSON: JSONTestSuite's valid texts are accepted and its invalid ones refused") {
  int valid = 0, invalid = 0, either = 0;
  for (const test::JsonText& text : test::json_test_suite()) {
    CAPTURE(text.name);
    const bool last_key = is_accepted<Json>(text.text, {.unique_keys = false});
    const bool ordered = is_accepted<nlohmann::ordered_json>(text.text, {.unique_keys = false});
    CHECK(last_key == ordered);
    const bool strict = is_accepted<Json>(text.text, {});
    CHECK(strict == is_accepted<nlohmann::ordered_json>(text.text, {}));
    CHECK(strict == (last_key && !has_key_twice(text)));
    if (text.is_valid()) CHECK(last_key);
    if (text.is_invalid()) CHECK_FALSE(last_key);
    ++(text.is_valid() ? valid : text.is_invalid() ? invalid : either);
  }
  CHECK(valid == 95);
  CHECK(invalid == 188);
  CHECK(either == 35);
}

TEST_CASE("strict JSON: a configuration accepts the objects of JSONTestSuite and nothing else") {
  int accepted = 0;
  for (const test::JsonText& text : test::json_test_suite()) {
    CAPTURE(text.name);
    const Json object = parse_json_or_discard(text.text);
    const std::string code = code_of([&] { config::read_json(text.text, "a.json"); });
    CHECK((code == "none") == object.is_object());
    if (code != "none")
      CHECK(code == (has_key_twice(text) ? "config.duplicate-key" : "config.syntax"));
    accepted += object.is_object() ? 1 : 0;
  }
  CHECK(accepted > 10);
}

TEST_CASE("strict JSON: JSONTestSuite's largest texts are refused before memory is allocated") {
  const auto& texts = test::json_test_suite();
  const long before = test::peak_memory_kib();
  for (const test::JsonText& text : texts) {
    if (text.text.size() < 1000) continue;
    CAPTURE(text.name);
    CHECK(parse_json_or_discard(text.text).is_discarded() == text.is_invalid());
  }
  CHECK(test::peak_memory_kib() - before < (16 << 10) * test::kMemoryPerByte);
}

TEST_CASE("strict JSON: a text of some MiB takes at most 40 times its size and 16 MiB") {
  for (const std::string value : {"0", "[]", "{}", "\"\"", "{\"\":0}"}) {
    CAPTURE(value);
    std::string text = "[" + value;
    while (text.size() < 2 << 20) text += "," + value;
    text += "]";
    const long before = test::peak_memory_kib();
    CHECK_FALSE(parse_json_or_discard(text).is_discarded());
    const long most = (16 << 10) + 40 * static_cast<long>(text.size() >> 10);
    CHECK(test::peak_memory_kib() - before < most * test::kMemoryPerByte);
  }
}

namespace {

// Returns the processor time of parsing a list of this many objects.
double seconds_of_objects(std::size_t count) {
  std::string text = "[{}";
  for (std::size_t i = 1; i < count; ++i) text += ",{\"key\":0}";
  text += "]";
  const double before = processor_seconds();
  CHECK(parse_strict_json(text).size() == count);
  return processor_seconds() - before;
}

}  // namespace

TEST_CASE("strict JSON: a list of objects takes time in proportion to its length") {
  seconds_of_objects(20'000);
  CHECK(seconds_of_objects(160'000) < 24 * seconds_of_objects(20'000));
}

TEST_CASE("strict JSON: depth is limited before a value is made") {
  CHECK(refusal(nested(1001)) == "none");
  CHECK(refusal(nested(1002)) == "a list or an object inside of more than 1000 others");
  CHECK(refusal(nested(3), {.max_depth = 2}) == "none");
  CHECK(refusal(nested(4), {.max_depth = 2}) == "a list or an object inside of more than 2 others");
  CHECK(refusal(std::string(10'000'000, '[')) ==
        "a list or an object inside of more than 1000 others");
  // Brackets in strings do not count as depth, even after an escaped quote.
  CHECK(refusal("[\"\\\"[[[[\", \"]\", {\"[\": 1}]", {.max_depth = 1}) == "none");
}

TEST_CASE("strict JSON: equal keys, other encodings and damage are refused with their place") {
  CHECK(refusal("{\"a\": {\"b\": 1, \"b\": 2}}") == "the key \"b\" twice in one object");
  CHECK(refusal("{\"a\": {\"b\": 1}, \"b\": 2}") == "none");
  CHECK(refusal("{\"b\": 1, \"b\": 2}", {.unique_keys = false}) == "none");
  CHECK(refusal("[1, tru]") == "invalid JSON at byte 8");
  CHECK(refusal("") == "invalid JSON at byte 1");
  CHECK(refusal("[\"\xC3\"]") == "invalid JSON at byte 4");
  CHECK(refusal("[1] x") == "invalid JSON at byte 5");
  CHECK(refusal("[1e999]").find("number overflow") == 0);
  // nlohmann's parser takes a NUL for the end of the text.
  CHECK(refusal(std::string("{}\0[", 4)) == "invalid JSON at byte 3");
  CHECK(refusal(std::string("{}\0", 3)) == "invalid JSON at byte 3");
  try {
    parse_strict_json("{\"a\": [{\"b\": 1, \"b\": 2}]}");
    FAIL("accepted");
  } catch (const JsonError& error) {
    CHECK(error.repeated() == KeyPath{"a", "b"});
    CHECK(error.byte() == 0);
  }
  try {
    parse_strict_json(std::string("[\"") + std::string(5000, 'x'));
    FAIL("accepted");
  } catch (const JsonError& error) {
    CHECK(error.byte() == 5003);
    CHECK(error.detail().size() <= 303);  // The parser repeats the text that it has read.
    CHECK(error.detail().find("syntax error") == 0);
  }
}

TEST_CASE("strict JSON: an object whose order is kept has at most 10,000 keys") {
  const auto object = [](std::size_t keys) {
    std::string text = "{\"k0\":0";
    for (std::size_t i = 1; i < keys; ++i) text += str(",\"k", i, "\":0");
    return text + "}";
  };
  CHECK(parse_strict_json<nlohmann::ordered_json>(object(10'000)).size() == 10'000);
  CHECK(parse_strict_json(object(10'001)).size() == 10'001);
  const std::string inner = "[1, {\"a\": " + object(10'001) + "}]";
  CHECK_THROWS_WITH_AS(parse_strict_json<nlohmann::ordered_json>(inner),
                       "more than 10000 keys in one object", JsonError);
}

TEST_CASE("strict JSON: parse_json_or_discard returns a discarded value for invalid text") {
  CHECK(parse_json_or_discard("[1]") == Json{1});
  CHECK(parse_json_or_discard("[1").is_discarded());
  CHECK(parse_json_or_discard(nested(5000)).is_discarded());
}

TEST_CASE("strict JSON: a file that is too large is refused before it is read") {
  const TemporaryDirectory folder;
  const auto file = folder.path() / "a.json";
  write_file_atomically(file, "{\"a\": 1}");
  CHECK(read_strict_json(file) == Json{{"a", 1}});
  CHECK(read_json_or_discard(file) == Json{{"a", 1}});
  std::filesystem::resize_file(file, kMaxJsonFileBytes + 1);  // It is sparse and takes no space.
  CHECK_THROWS_AS(read_strict_json(file), JsonError);
  CHECK(read_json_or_discard(file).is_discarded());
  CHECK(code_of([&] { read_strict_json(folder.path() / "b.json"); }) == "io.open");
}

TEST_CASE("strict JSON: whole numbers fit into 64 bits with a sign") {
  const auto number = [](const char* text) { return whole_number_in(Json::parse(text)); };
  CHECK(number("7") == 7);
  CHECK(number("-7") == -7);
  CHECK(number("2.0") == 2);
  CHECK(number("9223372036854775807") == 9223372036854775807);
  CHECK(number("-9223372036854775808") == std::int64_t{-9223372036854775807} - 1);
  CHECK(number("-9.223372036854775808e18") == std::int64_t{-9223372036854775807} - 1);
  for (const char* text : {"9223372036854775808", "9.223372036854775808e18", "1e300", "-1e300",
                           "1.5", "\"1\"", "null", "true", "[1]"}) {
    CAPTURE(text);
    CHECK_FALSE(number(text));
  }
}

TEST_CASE("strict JSON: a configuration and logs that are nested deeply are errors") {
  const std::string deep = nested(500'000);
  CHECK(code_of([&] { config::read_json("{\"seed\": " + deep + "}", "a.json"); }) ==
        "config.syntax");
  const TemporaryDirectory folder;
  write_file_atomically(folder.path() / "metrics.jsonl",
                        "{\"step\": 1, \"a\": 2}\n{\"step\": 2, \"a\": " + deep + "}\n" +
                            "{\"step\": 1e300, \"a\": 3}\n{\"step\": 3.0, \"a\": 4}\n");
  const auto runs = read_logged_runs({folder.path()});
  CHECK(runs.at(0).curves.at("a") == LoggedCurve{{1, 2.0}, {3, 4.0}});
  write_file_atomically(folder.path() / "trainer_state.json", "{\"log_history\": " + deep + "}");
  CHECK(code_of([&] { read_logged_runs({folder.path() / "trainer_state.json"}); }) ==
        "track.log-file");
}

}  // namespace strict_json_test
