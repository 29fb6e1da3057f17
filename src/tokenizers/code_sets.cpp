#include "tokenizers/code_sets.h"

#include <algorithm>
#include <array>
#include <string>

#include "tokenizers/unicode_tables.h"

namespace hasten::tokenizers {
namespace {

// The scripts, in the order of generate_unicode_tables.py.
constexpr std::array<std::string_view, 11> kScripts{
    "arabic", "cyrillic", "devanagari", "greek", "han", "hangul",
    "hebrew", "hiragana", "katakana",   "latin", "thai"};
// The categories, in the order of the enumeration Category.
constexpr std::array<std::string_view, 29> kCategories{
    "lu", "ll", "lt", "lm", "lo", "mn", "mc", "me", "nd", "nl", "no", "pc", "pd", "ps", "pe",
    "pi", "pf", "po", "sm", "sc", "sk", "so", "zs", "zl", "zp", "cc", "cf", "cn", "co"};

struct LongName {
  std::string_view name;
  std::string_view category;
};
constexpr std::array<LongName, 10> kLongNames{{{"letter", "l"},
                                               {"uppercaseletter", "lu"},
                                               {"lowercaseletter", "ll"},
                                               {"mark", "m"},
                                               {"number", "n"},
                                               {"decimalnumber", "nd"},
                                               {"punctuation", "p"},
                                               {"symbol", "s"},
                                               {"separator", "z"},
                                               {"spaceseparator", "zs"}}};

template <class Is>
CodeSet set_of_categories(Is is) {
  std::vector<CodeSet::Range> ranges;
  for (const CategoryRange& range : category_ranges) {
    if (!is(kCategories[static_cast<std::size_t>(range.category)])) continue;
    if (range.step == 1) {
      ranges.emplace_back(range.first, range.last);
      continue;
    }
    for (char32_t c = range.first; c <= range.last; c += range.step) ranges.emplace_back(c, c);
  }
  return CodeSet(std::move(ranges));
}

CodeSet any_category() {
  return set_of_categories([](std::string_view) { return true; });
}

std::optional<CodeSet> category_set(std::string_view name) {
  for (const LongName& each : kLongNames)
    if (name == each.name) name = each.category;
  if (name == "cn") return any_category().complement();
  if (name.empty() || name.size() > 2) return std::nullopt;
  const auto has_name = [name](std::string_view category) { return category.starts_with(name); };
  if (std::none_of(kCategories.begin(), kCategories.end(), has_name)) return std::nullopt;
  const CodeSet set = set_of_categories(has_name);
  return name == "c" ? set.unite(any_category().complement()) : set;
}

std::optional<CodeSet> script_set(std::string_view name) {
  const auto found = std::find(kScripts.begin(), kScripts.end(), name);
  if (found == kScripts.end()) return std::nullopt;
  std::vector<CodeSet::Range> ranges;
  for (const ScriptRange& range : script_ranges)
    if (range.script == found - kScripts.begin()) ranges.emplace_back(range.first, range.last);
  return CodeSet(std::move(ranges));
}

std::optional<CodeSet> posix_set(std::string_view name) {
  if (name == "digit") return regex_digit_set();
  if (name == "space") return regex_white_set();
  if (name == "word") return regex_word_set();
  if (name == "any") return CodeSet::of(0, CodeSet::kLast);
  if (name == "ascii") return CodeSet::of(0, 0x7F);
  if (name == "xdigit") return CodeSet({{'0', '9'}, {'A', 'F'}, {'a', 'f'}});
  return std::nullopt;
}

}  // namespace

CodeSet::CodeSet(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end());
  for (const Range& range : ranges) {
    if (!ranges_.empty() && range.first <= ranges_.back().second + 1)
      ranges_.back().second = std::max(ranges_.back().second, range.second);
    else
      ranges_.push_back(range);
  }
}

bool CodeSet::contains(char32_t c) const noexcept {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), c,
                       [](char32_t value, const Range& range) { return value < range.first; });
  return after != ranges_.begin() && c <= (after - 1)->second;
}

CodeSet CodeSet::unite(const CodeSet& other) const {
  std::vector<Range> ranges = ranges_;
  ranges.insert(ranges.end(), other.ranges_.begin(), other.ranges_.end());
  return CodeSet(std::move(ranges));
}

CodeSet CodeSet::intersect(const CodeSet& other) const {
  return complement().unite(other.complement()).complement();
}

CodeSet CodeSet::complement() const {
  CodeSet out;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) out.ranges_.emplace_back(next, range.first - 1);
    next = range.second + 1;
  }
  if (next <= kLast) out.ranges_.emplace_back(next, kLast);
  return out;
}

std::optional<CodeSet> property_set(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c == ' ' || c == '-' || c == '_') continue;
    plain += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  if (auto set = category_set(plain)) return set;
  if (auto set = script_set(plain)) return set;
  return posix_set(plain);
}

CodeSet regex_white_set() { return category_set("z")->unite(CodeSet({{9, 13}, {0x85, 0x85}})); }

CodeSet regex_digit_set() { return *category_set("nd"); }

CodeSet regex_word_set() {
  std::vector<CodeSet::Range> further;
  for (const CodePointRange& range : regex_word_ranges)
    further.emplace_back(range.first, range.last);
  return category_set("l")
      ->unite(*category_set("m"))
      .unite(*category_set("nd"))
      .unite(*category_set("pc"))
      .unite(CodeSet(std::move(further)));
}

}  // namespace hasten::tokenizers
