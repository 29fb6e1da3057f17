#include <algorithm>
#include <array>
#include <iterator>
#include <map>

#include "base/did_you_mean.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "options/sources.h"

namespace hasten::config {
namespace {

std::string upper(std::string text) {
  for (char& c : text) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return text;
}

// Names from other programs that an edit distance cannot match to hasten's names.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kForeignNames = {{
    {"lr", "learning_rate"},
    {"wd", "weight_decay"},
    {"epochs", "num_train_epochs"},
    {"batch_size", "per_device_train_batch_size"},
    {"eval_batch_size", "per_device_eval_batch_size"},
    {"train_file", "data"},
    {"validation_file", "eval_data"},
    {"model_name_or_path", "model"},
    {"max_seq_length", "max_length"},
}};

}  // namespace

std::string key_as_written(const Origin& origin, const std::string& key) {
  switch (origin.source) {
    case Origin::Source::flag:
      return "--" + key;
    case Origin::Source::environment:
      // torchrun's variables do not follow this pattern.
      return starts_with(origin.where, "PET_") ? origin.where : "HASTEN_" + upper(key);
    default:
      return key;
  }
}

std::string key_with_location(const Origin& origin, const std::string& key) {
  const bool names_itself = origin.source != Origin::Source::file;
  return names_itself ? key_as_written(origin, key) : origin.where + ": " + key;
}

std::optional<std::string> suggestion(const OptionTable& table, const std::string& key) {
  for (const auto& [foreign, name] : kForeignNames) {
    if (foreign == key && table.find(name)) return std::string(name);
  }
  return nearest(key, table.names());
}

void throw_unknown(const OptionTable& table, const std::string& key, const Origin& origin) {
  std::string plain = lower(key);
  std::replace(plain.begin(), plain.end(), '-', '_');
  const char* kind = origin.source == Origin::Source::flag ? "unknown argument " : "unknown key ";
  const std::string where = origin.source == Origin::Source::file ? origin.where + ": " : "";
  throw ConfigError("config.unknown-key",
                    {.what = where + kind + key_as_written(origin, key),
                     .hint = did_you_mean(
                         suggestion(table, plain), "--help lists every name",
                         [&](const std::string& name) { return key_as_written(origin, name); })});
}

void throw_not_supported(const std::string& what, const std::string& hint) {
  throw ConfigError("config.not-supported", {.what = what + " is not supported yet", .hint = hint});
}

[[noreturn]] static void throw_refused(const std::string& what, const std::string& hint) {
  throw ConfigError("config.not-supported", {.what = what + " is not supported", .hint = hint});
}

namespace {

using EffectiveAssignments = std::map<Option*, const Assignment*>;

const FormerName* former_name(const Option& option, const std::string& key) {
  for (const FormerName& former : option.former_names) {
    if (former.name == key) return &former;
  }
  return nullptr;
}

std::string quoted(const Value& value) { return "'" + to_text(value) + "'"; }

// Throws if one source sets an option under two names, because it is unclear which one is meant.
void check_one_name(const Option& option, const Assignment& first, const Assignment& second) {
  if (first.key == second.key) return;
  throw ConfigError("config.contradiction",
                    {.what = key_with_location(second.origin, second.key) + " and " +
                             key_as_written(first.origin, first.key) + " set the same option",
                     .hint = "keep " + key_as_written(second.origin, option.name)});
}

EffectiveAssignments find_effective_assignments(
    OptionTable& table, const std::vector<std::vector<Assignment>>& sources) {
  EffectiveAssignments effective;
  for (const auto& source : sources) {
    EffectiveAssignments here;
    for (const Assignment& assignment : source) {
      Option* option = table.find(assignment.key);
      if (!option) throw_unknown(table, assignment.key, assignment.origin);
      const auto [found, inserted] = here.emplace(option, &assignment);
      if (!inserted) check_one_name(*option, *found->second, assignment);
      found->second = &assignment;
    }
    for (const auto& [option, assignment] : here) effective[option] = assignment;
  }
  return effective;
}

[[noreturn]] void throw_bad_value(const Option& option, const Assignment& assignment,
                                  const std::string& code) {
  const auto* text = std::get_if<std::string>(&assignment.value);
  const auto near = text ? nearest(*text, option.choices) : std::nullopt;
  throw ConfigError(code, {.what = key_with_location(assignment.origin, assignment.key),
                           .got = quoted(assignment.value),
                           .expected = option.expected(),
                           .hint = did_you_mean(near)});
}

// Throws ConfigError for values that are known but not supported yet.
void check_choice(const Option& option, const Assignment& assignment) {
  std::vector<std::string> values;
  if (const auto* text = std::get_if<std::string>(&assignment.value)) values = {*text};
  if (const auto* list = std::get_if<std::vector<std::string>>(&assignment.value)) values = *list;
  for (const std::string& value : values) {
    for (const std::string& later : option.choices_unimplemented) {
      if (value != later) continue;
      throw_not_supported(key_with_location(assignment.origin, assignment.key) + " " + value,
                          option.unimplemented_hint.empty()
                              ? "supported values are " + join(option.choices, ", ")
                              : option.unimplemented_hint);
    }
    for (const auto& [refused, hint] : option.choices_refused) {
      if (value == refused)
        throw_refused(key_with_location(assignment.origin, assignment.key) + " " + value, hint);
    }
  }
}

Value apply_alias(const Option& option, const Value& value) {
  const auto* text = std::get_if<std::string>(&value);
  for (const auto& [other, means] : option.aliases) {
    if (text && lower(*text) == other) return means;
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
                      {.what = key_with_location(assignment.origin, assignment.key),
                       .got = quoted(assignment.value),
                       .expected = "a number below " + str(*former->below),
                       .hint = "use the current name, " + option.name});
  }
  notices.push_back(key_with_location(assignment.origin, assignment.key) + " is a former name of " +
                    option.name);
}

void apply(Option& option, const Assignment& assignment, std::vector<std::string>& notices) {
  if (std::holds_alternative<std::monostate>(assignment.value)) {
    option.set(option.default_value);
    option.origin = {};  // as if no source named it, so that it may follow from other options
    return;
  }
  option.origin = assignment.origin;
  check_choice(option, assignment);
  if (!option.set(apply_alias(option, assignment.value)))
    throw_bad_value(option, assignment, "config.bad-value");
  if (!option.is_in_limits()) throw_bad_value(option, assignment, "config.out-of-range");
  check_former(option, assignment, notices);
}

void check_allowed_in_file(const std::vector<Assignment>& assignments) {
  for (const Assignment& assignment : assignments) {
    if (assignment.key != "config_file" && assignment.key != "print_config") continue;
    throw ConfigError("config.unknown-key",
                      {.what = assignment.origin.where + ": " + assignment.key +
                               " cannot be set in a configuration file",
                       .hint = "pass it as --" + assignment.key});
  }
}

// Returns the name of an option for messages: the name as written, or the option's own name if C++
// code set it.
std::string display_name(const Option& option) {
  const auto source = option.origin.source;
  const bool written = source != Origin::Source::default_value && source != Origin::Source::derived;
  return written ? key_with_location(option.origin, option.name) : option.name;
}

}  // namespace

void check_limits(const OptionTable& table) {
  for (const Option& option : table.options()) {
    if (option.is_in_limits()) continue;
    throw ConfigError("config.out-of-range", {.what = display_name(option),
                                              .got = to_text(option.get()),
                                              .expected = option.expected()});
  }
}

void check_status(const OptionTable& table, std::vector<std::string>& notices) {
  for (const Option& option : table.options()) {
    if (option.status == Status::supported || option.is_default()) continue;
    if (option.status == Status::unimplemented)
      throw_not_supported(display_name(option), option.reason);
    if (option.status == Status::refused) throw_refused(display_name(option), option.reason);
    notices.push_back(display_name(option) + " is ignored: " + option.reason);
  }
}

Sources read_sources(const OptionTable& table, const std::vector<Assignment>& flags,
                     const Environment& environment, std::vector<std::string>& notices) {
  const auto variables = read_environment(table, environment, internal_variables(), notices);
  Sources sources{.files = config_files(flags, variables), .assignments = {}};
  for (const std::string& file : sources.files) {
    sources.assignments.push_back(read_option_file(file));
    check_allowed_in_file(sources.assignments.back());
  }
  sources.assignments.push_back(variables);
  sources.assignments.push_back(flags);
  return sources;
}

void resolve(OptionTable& table, const std::vector<std::vector<Assignment>>& sources,
             std::vector<std::string>& notices) {
  const EffectiveAssignments effective = find_effective_assignments(table, sources);
  // Follows the order of the table, so that the same input always reports the same error first.
  for (Option& option : table.options()) {
    if (const auto found = effective.find(&option); found != effective.end())
      apply(option, *found->second, notices);
  }
}

std::vector<Assignment> flags_of(const OptionTable& table, const std::vector<Assignment>& flags) {
  std::vector<Assignment> own;
  std::copy_if(flags.begin(), flags.end(), std::back_inserter(own),
               [&](const Assignment& flag) { return table.find(flag.key) != nullptr; });
  return own;
}

void apply_flags(OptionTable& table, const std::vector<Assignment>& flags) {
  std::vector<std::string> notices;
  resolve(table, {flags}, notices);
  check_status(table, notices);
}

}  // namespace hasten::config
