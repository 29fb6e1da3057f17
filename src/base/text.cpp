#include "hasten/base/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/utf8.h"

namespace hasten {
namespace {

std::string format_double(const char* format, int precision, double value) {
  std::array<char, 64> small;
  const int length = std::snprintf(small.data(), small.size(), format, precision, value);
  if (length < static_cast<int>(small.size())) return std::string(small.data(), length);
  std::string large(length + 1, '\0');
  std::snprintf(large.data(), large.size(), format, precision, value);
  large.resize(length);
  return large;
}

// Returns the Damerau-Levenshtein distance, without edits between two swapped characters.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, replace});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

// Returns the number of terminal columns of the text: one for each code point, which is right for
// the texts that hasten prints.
std::size_t width(std::string_view text) { return code_point_count(text); }

bool is_number(std::string_view cell) {
  return !cell.empty() && (std::isdigit(static_cast<unsigned char>(cell[0])) || cell[0] == '.' ||
                           ((cell[0] == '-' || cell[0] == '+') && cell.size() > 1));
}

}  // namespace

namespace detail {
void append(std::string& out, double value) {
  std::array<char, 40> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  out.append(buffer.data(), end);
}
}  // namespace detail

std::string fixed(double value, int decimals) { return format_double("%.*f", decimals, value); }
std::string significant(double value, int digits) { return format_double("%.*g", digits, value); }

std::string human_bytes(std::int64_t bytes) {
  static constexpr std::array<const char*, 6> units = {"B", "kB", "MB", "GB", "TB", "PB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (std::fabs(value) >= 999.5 && unit + 1 < units.size()) {
    value /= 1000;
    ++unit;
  }
  const double size = std::fabs(value);
  const int decimals = unit == 0 || size >= 99.95 ? 0 : (size >= 9.995 ? 1 : 2);
  return fixed(value, decimals) + " " + units[unit];
}

std::string human_duration(double seconds, bool hundredths) {
  if (!std::isfinite(seconds)) return "?";
  const char* sign = seconds < 0 ? "-" : "";
  const auto total = static_cast<std::int64_t>(std::llround(std::fabs(seconds) * 100));
  const std::int64_t whole = hundredths ? total / 100 : (total + 50) / 100;
  const std::int64_t hours = whole / 3600, minutes = whole / 60 % 60, rest = whole % 60;
  auto two = [](std::int64_t n) { return std::string(n < 10 ? "0" : "") + std::to_string(n); };
  std::string out = sign;
  out += hours > 0 ? str(hours, ':', two(minutes), ':', two(rest)) : str(minutes, ':', two(rest));
  if (hundredths) out += "." + two(total % 100);
  return out;
}

std::string group_thousands(std::int64_t value) {
  std::string digits = std::to_string(value);
  const std::size_t first = value < 0 ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += separator;
    out += parts[i];
  }
  return out;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t start = 0;;) {
    const std::size_t end = text.find(separator, start);
    parts.emplace_back(text.substr(start, end - start));
    if (end == std::string_view::npos) return parts;
    start = end + 1;
  }
}

std::string_view trim(std::string_view text) {
  static constexpr std::string_view blanks = " \t\r\n\f\v";
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}
bool ends_with(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

std::string short_digest(std::string_view bytes) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211u;
  std::string digits(16, '0');
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit, hash >>= 4)
    *digit = "0123456789abcdef"[hash & 15];
  return digits;
}

std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates) {
  std::size_t best = std::max<std::size_t>(1, word.size() / 3) + 1;
  std::optional<std::string> found;
  for (const std::string& candidate : candidates) {
    // The distance is at least the difference of the lengths. A hostile file may have a key of
    // several megabytes, and the table of distances would take gigabytes.
    const auto [shorter, longer] = std::minmax({word.size(), candidate.size()});
    if (longer - shorter >= best) continue;
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best) {
      best = distance;
      found = candidate;
    }
  }
  return found;
}

std::string table(const std::vector<std::string>& header,
                  const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const std::string& cell : header) widths.push_back(width(cell));
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size() && i < widths.size(); ++i)
      widths[i] = std::max(widths[i], width(row[i]));
  }
  auto line = [&](const std::vector<std::string>& row, bool is_header) {
    std::string out;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const std::string cell = i < row.size() ? row[i] : "";
      const bool numbers = is_header
                               ? (!rows.empty() && i < rows[0].size() && is_number(rows[0][i]))
                               : is_number(cell);
      const std::string pad(widths[i] - width(cell), ' ');
      if (i > 0) out += "  ";
      out += numbers ? pad + cell : cell + pad;
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out + "\n";
  };
  std::string rule;
  for (std::size_t i = 0; i < widths.size(); ++i)
    rule += std::string(i > 0 ? 2 : 0, ' ') + std::string(widths[i], '-');
  std::string out = line(header, true) + rule + "\n";
  for (const auto& row : rows) out += line(row, false);
  return out;
}

}  // namespace hasten
