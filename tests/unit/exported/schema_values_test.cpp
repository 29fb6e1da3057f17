// Values of the export schema: valid values are read, and every other value is refused with its
// place.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

#include "exported/json_cursor.h"
#include "exported/schema_types.h"
#include "hasten/base/error.h"

namespace exported_schema_values_test {

using namespace hasten;
using namespace hasten::exported;

namespace {

// Returns the place and the refused value from the error that reading the value of "k" throws.
template <class Read>
std::string error_of_value(const std::string& value, Read read) {
  try {
    const auto document = JsonDocument::parse("{\"k\": " + value + "}", "file");
    read(document.root()["k"]);
  } catch (const DataError& error) {
    CHECK(error.code() == "exported.graph");
    return error.text().what + ": " + error.text().got;
  }
  return "none";
}

template <class Read>
auto value_of(const std::string& value, Read read) {
  const auto document = JsonDocument::parse("{\"k\": " + value + "}", "file");
  return read(document.root()["k"]);
}

const auto integer = [](const JsonCursor& value) { return value.integer(); };
const auto number = [](const JsonCursor& value) { return value.number(); };

}  // namespace

TEST_CASE("schema values: numbers include infinity and NaN") {
  CHECK(value_of("-9223372036854775808", integer) == std::numeric_limits<std::int64_t>::min());
  CHECK(error_of_value("9223372036854775808", integer) == "file.k: 9223372036854775808");
  CHECK(error_of_value("1.0", integer) == "file.k: 1.0");
  CHECK(value_of("\"Infinity\"", number) == std::numeric_limits<double>::infinity());
  CHECK(value_of("\"-Infinity\"", number) == -std::numeric_limits<double>::infinity());
  CHECK(std::isnan(value_of("\"NaN\"", number)));
  CHECK(value_of("2", number) == 2);
  CHECK(error_of_value("\"2\"", number) == "file.k: \"2\"");
  const std::string long_text = "\"" + std::string(100, 'a') + "\"";
  CHECK(error_of_value(long_text, number) == "file.k: \"" + std::string(79, 'a') + "...");
}

TEST_CASE("schema values: values of the wrong JSON type are refused") {
  CHECK(error_of_value("1", [](const JsonCursor& value) { value.text(); }) == "file.k: 1");
  CHECK(error_of_value("1", [](const JsonCursor& value) { value.boolean(); }) == "file.k: 1");
  CHECK(error_of_value("1", [](const JsonCursor& value) { value.items(); }) == "file.k: 1");
  CHECK(error_of_value("1", [](const JsonCursor& value) { value.members(); }) == "file.k: 1");
  CHECK(error_of_value("1", [](const JsonCursor& value) { value["a"]; }) == "file.k: 1");
  CHECK(error_of_value("1", [](const JsonCursor& value) { value.find("a"); }) == "file.k: 1");
  CHECK(error_of_value("{}", [](const JsonCursor& value) { value["a"]; }) ==
        "file.k: no field \"a\"");
  CHECK(error_of_value("{}", [](const JsonCursor& value) { value.alternative(); }) == "file.k: {}");
  CHECK_FALSE(value_of("{\"a\": null}",
                       [](const JsonCursor& value) { return value.find("a").has_value(); }));
}

TEST_CASE("schema values: unknown types, layouts, memory formats and devices are refused") {
  CHECK((value_of("13", read_scalar_type) == at::kBFloat16));
  CHECK(error_of_value("99", read_scalar_type) == "file.k: data type 99");
  CHECK((value_of("7", read_layout) == at::kStrided));
  CHECK(error_of_value("1", read_layout) == "file.k: layout 1");
  CHECK((value_of("1", read_memory_format) == at::MemoryFormat::Contiguous));
  CHECK((value_of("2", read_memory_format) == at::MemoryFormat::ChannelsLast));
  CHECK((value_of("3", read_memory_format) == at::MemoryFormat::ChannelsLast3d));
  CHECK((value_of("4", read_memory_format) == at::MemoryFormat::Preserve));
  CHECK(error_of_value("5", read_memory_format) == "file.k: memory format 5");
  CHECK((value_of("{\"type\": \"cpu\", \"index\": null}", read_device) == at::Device(at::kCPU)));
  CHECK((value_of("{\"type\": \"cuda\", \"index\": 3}", read_device) == at::Device(at::kCUDA, 3)));
  CHECK(error_of_value("{\"type\": \"cuda\", \"index\": 128}", read_device) == "file.k.index: 128");
  CHECK(error_of_value("{\"type\": \"toaster\"}", read_device) == "file.k: toaster");
  const std::string meta =
      "{\"dtype\": 7, \"layout\": 7, \"requires_grad\": false, \"strides\": [], "
      "\"storage_offset\": {\"as_int\": 0}, \"sizes\": [{\"as_expr\": {\"expr_str\": \"s0\"}}, ";
  CHECK(value_of(meta + "{\"as_int\": 3}]}", read_tensor_meta).sizes.size() == 2);
  CHECK(error_of_value(meta + "{\"as_text\": 3}]}", read_tensor_meta) ==
        "file.k.sizes[1]: as_text");
}

}  // namespace exported_schema_values_test
