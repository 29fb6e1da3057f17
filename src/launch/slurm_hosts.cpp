// Reads the lists of hosts that Slurm writes: names with numbers in brackets.

#include "base/parse_number.h"
#include "hasten/base/text.h"
#include "hasten/launch/worker.h"
#include "launch/variables.h"

namespace hasten {
namespace {

constexpr std::size_t kMaxHosts = 65536;  // in one list; Slurm's own limit is about this size

[[noreturn]] void throw_bad_host_list(std::string_view list, const std::string& expected) {
  throw_environment({.what = "Slurm's list of hosts",
                     .got = "'" + std::string(list.substr(0, 200)) + "'",
                     .expected = expected});
}

// Splits the list at the commas that are not in brackets.
std::vector<std::string_view> split_outside_brackets(std::string_view list) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  bool inside = false;
  for (std::size_t at = 0; at <= list.size(); ++at) {
    const char letter = at < list.size() ? list[at] : ',';
    if (letter == '[' || letter == ']') {
      if (inside == (letter == '['))
        throw_bad_host_list(list, "matching brackets, none inside another");
      inside = !inside;
    } else if (letter == ',' && (at == list.size() || !inside)) {
      if (at == begin) throw_bad_host_list(list, "a host name on both sides of each comma");
      parts.push_back(list.substr(begin, at - begin));
      begin = at + 1;
    }
  }
  if (inside) throw_bad_host_list(list, "matching brackets, none inside another");
  return parts;
}

std::uint64_t number_in_range(std::string_view digits, std::string_view list) {
  const auto value = parse_number<std::uint64_t>(digits);
  if (!value || digits.size() > 18)
    throw_bad_host_list(list, "numbers and ranges such as [01-03,7] in brackets");
  return *value;
}

// Turns "01-03,7" into 01 02 03 7. All numbers of a range have the same number of digits as the
// first one.
std::vector<std::string> expand_ranges(std::string_view inside, std::string_view list) {
  std::vector<std::string> numbers;
  for (const std::string& range : split(inside, ',')) {
    const std::size_t dash = range.find('-');
    const std::string first = range.substr(0, dash);
    const std::uint64_t from = number_in_range(first, list);
    const std::uint64_t to = dash == std::string::npos
                                 ? from
                                 : number_in_range(std::string_view(range).substr(dash + 1), list);
    if (to < from) throw_bad_host_list(list, "ascending ranges");
    if (to - from >= kMaxHosts - numbers.size())
      throw_bad_host_list(list, str("at most ", kMaxHosts, " hosts"));
    for (std::uint64_t value = from; value <= to; ++value) {
      std::string digits = std::to_string(value);
      if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
      numbers.push_back(std::move(digits));
    }
  }
  return numbers;
}

// Expands one name with any number of brackets; the last bracket varies fastest.
std::vector<std::string> expand_name(std::string_view part, std::string_view list) {
  std::vector<std::string> names = {""};
  while (!part.empty()) {
    const std::size_t open = std::min(part.find('['), part.size());
    for (std::string& name : names) name += part.substr(0, open);
    part.remove_prefix(open);
    if (part.empty()) break;
    const std::size_t close = part.find(']');
    const auto numbers = expand_ranges(part.substr(1, close - 1), list);
    part.remove_prefix(close + 1);
    if (names.size() * numbers.size() > kMaxHosts)
      throw_bad_host_list(list, str("at most ", kMaxHosts, " hosts"));
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const std::string& digits : numbers) longer.push_back(name + digits);
    }
    names = std::move(longer);
  }
  return names;
}

}  // namespace

std::vector<std::string> expand_slurm_hosts(std::string_view list) {
  for (const unsigned char letter : list) {
    if (letter <= ' ' || letter >= 0x7f || letter == '(')
      throw_bad_host_list(list, "host names such as gpu[01-03,7],login");
  }
  std::vector<std::string> hosts;
  for (const std::string_view part : split_outside_brackets(list)) {
    auto names = expand_name(part, list);
    if (hosts.size() + names.size() > kMaxHosts)
      throw_bad_host_list(list, str("at most ", kMaxHosts, " hosts"));
    hosts.insert(hosts.end(), names.begin(), names.end());
  }
  return hosts;
}

}  // namespace hasten
