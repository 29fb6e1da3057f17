#include <map>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "options/messages.h"
#include "options/sources.h"

namespace hasten::config {
namespace {

using Winners = std::map<Option*, const Assignment*>;

const FormerName* former_name(const Option& option, const std::string& key) {
  for (const FormerName& former : option.former_names) {
    if (former.name == key) return &former;
  }
  return nullptr;
}

std::string quoted(const Value& value) { return "'" + to_text(value) + "'"; }

// One source may use only one name of an option: with two, it is unclear which is meant.
void check_one_name(const Option& option, const Assignment& first, const Assignment& second) {
  if (first.key == second.key) return;
  throw ConfigError("config.contradiction",
                    {.what = key_with_place(second.origin, second.key) + " and " +
                             key_as_written(first.origin, first.key) + " set the same option",
                     .hint = "keep " + key_as_written(second.origin, option.name)});
}

Winners find_winners(OptionTable& table, const std::vector<std::vector<Assignment>>& sources) {
  Winners winners;
  for (const auto& source : sources) {
    Winners here;
    for (const Assignment& assignment : source) {
      Option* option = table.find(assignment.key);
      if (!option) throw_unknown(table, assignment.key, assignment.origin);
      const auto [found, fresh] = here.emplace(option, &assignment);
      if (!fresh) check_one_name(*option, *found->second, assignment);
      found->second = &assignment;
    }
    for (const auto& [option, assignment] : here) winners[option] = assignment;
  }
  return winners;
}

[[noreturn]] void throw_bad_value(const Option& option, const Assignment& assignment,
                                  const std::string& code) {
  const auto* text = std::get_if<std::string>(&assignment.value);
  const auto near = text ? nearest(*text, option.choices) : std::nullopt;
  throw ConfigError(code, {.what = key_with_place(assignment.origin, assignment.key),
                           .got = quoted(assignment.value),
                           .expected = option.expected(),
                           .hint = near ? "did you mean " + *near + "?" : ""});
}

// Throws ConfigError for words that are known but not supported yet.
void check_choice(const Option& option, const Assignment& assignment) {
  std::vector<std::string> words;
  if (const auto* text = std::get_if<std::string>(&assignment.value)) words = {*text};
  if (const auto* list = std::get_if<std::vector<std::string>>(&assignment.value)) words = *list;
  for (const std::string& word : words) {
    for (const std::string& later : option.choices_not_yet) {
      if (word != later) continue;
      throw_not_supported(key_with_place(assignment.origin, assignment.key) + " " + word,
                          "supported values are " + join(option.choices, ", "));
    }
  }
}

Value apply_alias(const Option& option, const Value& value) {
  const auto* text = std::get_if<std::string>(&value);
  for (const auto& [word, means] : option.aliases) {
    if (text && lower(*text) == word) return means;
  }
  return value;
}

void check_former(const Option& option, const Assignment& assignment,
                  std::vector<std::string>& notices) {
  const FormerName* former = former_name(option, assignment.key);
  if (!former) return;
  const Value value = option.get();
  const auto* number = std::get_if<double>(&value);
  if (former->below && number && *number >= *former->below) {
    throw ConfigError("config.out-of-range",
                      {.what = key_with_place(assignment.origin, assignment.key),
                       .got = quoted(assignment.value),
                       .expected = "a number below " + str(*former->below),
                       .hint = "use the current name, " + option.name});
  }
  notices.push_back(key_with_place(assignment.origin, assignment.key) + " is a former name of " +
                    option.name);
}

void apply(Option& option, const Assignment& assignment, std::vector<std::string>& notices) {
  option.origin = assignment.origin;
  if (std::holds_alternative<std::monostate>(assignment.value)) {
    option.set(option.default_value);
    return;
  }
  check_choice(option, assignment);
  if (!option.set(apply_alias(option, assignment.value)))
    throw_bad_value(option, assignment, "config.bad-value");
  if (!option.in_limits()) throw_bad_value(option, assignment, "config.out-of-range");
  check_former(option, assignment, notices);
}

// The name of an option in messages: as it was written, or the option's own name if C++ set it.
std::string display_name(const Option& option) {
  const auto source = option.origin.source;
  const bool written = source != Origin::Source::default_value && source != Origin::Source::derived;
  return written ? key_with_place(option.origin, option.name) : option.name;
}

}  // namespace

void check_limits(const OptionTable& table) {
  for (const Option& option : table.options()) {
    if (option.in_limits()) continue;
    throw ConfigError("config.out-of-range", {.what = display_name(option),
                                              .got = to_text(option.get()),
                                              .expected = option.expected()});
  }
}

void check_status(const OptionTable& table, std::vector<std::string>& notices) {
  for (const Option& option : table.options()) {
    if (option.status == Status::supported || option.is_default()) continue;
    if (option.status == Status::not_yet) throw_not_supported(display_name(option), option.reason);
    notices.push_back(display_name(option) + " is ignored: " + option.reason);
  }
}

void resolve(OptionTable& table, const std::vector<std::vector<Assignment>>& sources,
             std::vector<std::string>& notices) {
  const Winners winners = find_winners(table, sources);
  // Follows the order of the table, so that the same input always reports the same error first.
  for (Option& option : table.options()) {
    if (const auto won = winners.find(&option); won != winners.end())
      apply(option, *won->second, notices);
  }
}

}  // namespace hasten::config
