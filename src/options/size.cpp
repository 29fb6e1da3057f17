#include "options/size.h"

#include <optional>
#include <string_view>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "options/value.h"

namespace hasten::config {
namespace {

// The bytes of a unit in lower case.
std::optional<std::int64_t> bytes_of_unit(std::string_view unit) {
  constexpr std::pair<std::string_view, std::int64_t> kUnits[] = {{"", 1},
                                                                  {"b", 1},
                                                                  {"kb", 1'000},
                                                                  {"mb", 1'000'000},
                                                                  {"gb", 1'000'000'000},
                                                                  {"tb", 1'000'000'000'000},
                                                                  {"k", std::int64_t{1} << 10},
                                                                  {"m", std::int64_t{1} << 20},
                                                                  {"g", std::int64_t{1} << 30},
                                                                  {"t", std::int64_t{1} << 40},
                                                                  {"kib", std::int64_t{1} << 10},
                                                                  {"mib", std::int64_t{1} << 20},
                                                                  {"gib", std::int64_t{1} << 30},
                                                                  {"tib", std::int64_t{1} << 40}};
  for (const auto& [name, bytes] : kUnits) {
    if (name == unit) return bytes;
  }
  return std::nullopt;
}

// Returns nullopt if the text is not a number or the product does not fit in 63 bits. The product
// of a whole number is exact.
std::optional<std::int64_t> multiply(const std::string& number, std::int64_t factor) {
  if (const auto whole = parse_integer(number)) {
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(*whole, factor, &bytes)) return std::nullopt;
    return bytes;
  }
  const auto fraction = parse_finite(number);
  if (!fraction) return std::nullopt;
  const double bytes = *fraction * static_cast<double>(factor);
  constexpr double kEnd = 9223372036854775808.0;  // 2^63
  if (!(bytes >= 1 && bytes < kEnd)) return std::nullopt;
  return static_cast<std::int64_t>(bytes);
}

}  // namespace

std::int64_t parse_size(const std::string& option, const std::string& text) {
  const std::size_t last_digit = text.find_last_of("0123456789");
  const std::size_t end = last_digit == std::string::npos ? 0 : last_digit + 1;
  const auto factor = bytes_of_unit(lower(trim(text.substr(end))));
  const auto bytes = factor ? multiply(text.substr(0, end), *factor) : std::nullopt;
  if (bytes && *bytes > 0) return *bytes;
  throw ConfigError("config.bad-value", {.what = option,
                                         .got = "'" + text + "'",
                                         .expected = "a number of bytes above 0, such as 16GiB, "
                                                     "5GB or 1.5GB"});
}

}  // namespace hasten::config
