// File: options/describe.h (internal)
// Describes an options struct once. Flags, file keys, environment names, help, the reference page
// and the list of resolved values all follow from the description.
//
//   struct Run {
//     double rate = 0.1;
//     std::int64_t steps = 100;
//     bool fast = false;
//   };
//   void describe(config::OptionTable& table, Run& run) {
//     config::Describer d(table, run);
//     d.group("Speed");
//     d("rate", &Run::rate, "Step size.").above(0);
//     d("steps", &Run::steps, "How many steps.").at_least(1).former_name("iterations");
//     d("fast", &Run::fast, "Skip the checks.");
//     d.unimplemented<bool>("warp", "needs an engine");  // a known name; setting it is an error
//   }
//
//   Run run;
//   config::OptionTable table;
//   describe(table, run);
//   table.find("rate")->set(std::string("0.5"));            // run.rate == 0.5
//
// Field types: bool, std::int64_t, double, std::string, an enumeration with Names<>,
// std::vector<std::string>, Kwargs, and std::optional of these. An empty optional, text, list or
// map counts as unset. A table points into the struct that it describes; the struct must outlive
// it. Several structs may share a table. Thread rule: confine a table to one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "hasten/options/detail/kwargs.h"
#include "hasten/options/detail/names.h"
#include "hasten/options/detail/resolved_value.h"

namespace hasten::config {

enum class Status {
  supported,
  unimplemented,  // Setting it is the error "config.not-supported".
  refused,        // The same error, for a name that hasten does not need or handles differently.
  no_effect,      // Setting it has no effect and gives a notice.
};

enum class Kind { boolean, integer, number, text, choice, list, kwargs };

// The range of a number.
struct Limits {
  std::optional<double> minimum;  // Inclusive unless `above` is set.
  bool above = false;
  std::optional<double> maximum;  // Inclusive unless `below` is set.
  bool below = false;
};

// An earlier name of an option. It is still read, with a notice. With `below`, a value of `below`
// or more under that name is an error.
struct FormerName {
  std::string name;
  std::optional<double> below;
};

// One option: its name, its type, its limits, and access to its field.
struct Option {
  std::string name;
  std::string group;
  std::string help;
  Kind kind = Kind::text;
  std::vector<std::string> choices;                // For a choice, and for a list of choices.
  std::vector<std::string> choices_unimplemented;  // Known values that are not supported yet.
  // Known values that are not supported, each with the value to use instead.
  std::vector<std::pair<std::string, std::string>> choices_refused;
  // The values to use instead of choices_unimplemented. If empty, the message lists the supported
  // values.
  std::string unimplemented_hint;
  // Other texts for a choice, as {text, choice}: {"true", "all"}.
  std::vector<std::pair<std::string, std::string>> aliases;
  std::vector<FormerName> former_names;
  Limits limits;
  Status status = Status::supported;
  std::string reason;         // Why the option is not supported, or what to use instead.
  bool keeps_commas = false;  // Commas do not separate items; repeated flags append.
  bool has_field = true;      // False for known names without a member.
  bool optional = false;      // True if the field is a std::optional.
  Value default_value;
  Origin origin;

  // Sets the field. Returns false and leaves the field unchanged if the value has the wrong type or
  // is not one of the choices.
  std::function<bool(const Value&)> set;
  std::function<Value()> get;

  bool is_default() const { return get() == default_value; }
  // Returns true if the value is allowed: a number must be finite and within the limits, and every
  // item of a list must be one of the choices.
  bool is_in_limits() const;
  // The allowed values, for messages: "a number above 0", "true or false", "one of no, steps,
  // epoch".
  std::string expected() const;

  // Setters that can be chained in a description.
  Option& at_least(double value);
  Option& above(double value);
  Option& at_most(double value);
  Option& below(double value);
  Option& one_of(std::vector<std::string> values);
  // Sets choices_unimplemented, and removes these values from the choices.
  Option& unimplemented_choices(std::vector<std::string> values, std::string hint = "");
  // Adds to choices_refused.
  Option& refused_choices(const std::vector<std::string>& values, const std::string& hint);
  Option& alias(std::string text, std::string means);
  // For a list of texts that may contain commas, such as commands of a shell.
  Option& keep_commas();
  Option& former_name(std::string former, std::optional<double> below = std::nullopt);
  // Sets Status::unimplemented with this reason.
  Option& not_supported(std::string why);
};

class OptionTable {
 public:
  std::vector<Option>& options() { return options_; }
  const std::vector<Option>& options() const { return options_; }
  // Finds an option by its name or a former name, where '-' is read as '_'. Returns nullptr if
  // there is none.
  Option* find(std::string_view name);
  const Option* find(std::string_view name) const;
  // All names that find() knows.
  std::vector<std::string> names() const;

 private:
  std::vector<Option> options_;
};

// A value of any type, kept as text, for known names without a field.
struct AnyText {
  std::string text;
};

namespace detail {

bool assign(bool& to, const Value& from);
bool assign(std::int64_t& to, const Value& from);
bool assign(double& to, const Value& from);
bool assign(std::string& to, const Value& from);
bool assign(std::vector<std::string>& to, const Value& from);
bool assign(Kwargs& to, const Value& from);
bool assign(AnyText& to, const Value& from);
template <class Enum>
requires std::is_enum_v<Enum>
bool assign(Enum& to, const Value& from) {
  const auto* name = std::get_if<std::string>(&from);
  const auto found = name ? from_name<Enum>(*name) : std::nullopt;
  if (found) to = *found;
  return found.has_value();
}
// Returns true for the texts "none" and "null", which unset an optional number, flag or choice.
bool means_unset(const Value& from);
template <class T>
bool assign(std::optional<T>& to, const Value& from) {
  if (means_unset(from)) {
    to.reset();
    return true;
  }
  T value{};
  if (!assign(value, from)) return false;
  to = value;
  return true;
}

inline Value value_of(bool value) { return value; }
inline Value value_of(std::int64_t value) { return value; }
inline Value value_of(double value) { return value; }
inline Value value_of(const std::string& value) { return value; }
inline Value value_of(const std::vector<std::string>& value) { return value; }
inline Value value_of(const Kwargs& value) { return value; }
inline Value value_of(const AnyText& value) { return value.text; }
template <class Enum>
requires std::is_enum_v<Enum> Value value_of(Enum value) { return std::string(name_of(value)); }
template <class T>
Value value_of(const std::optional<T>& value) {
  return value ? value_of(*value) : Value{};
}

template <class T>
struct Traits {
  using Inner = T;
  static constexpr bool optional = false;
};
template <class T>
struct Traits<std::optional<T>> {
  using Inner = T;
  static constexpr bool optional = true;
};

template <class T>
constexpr Kind kind_of() {
  if constexpr (std::is_same_v<T, bool>) return Kind::boolean;
  if constexpr (std::is_same_v<T, std::int64_t>) return Kind::integer;
  if constexpr (std::is_same_v<T, double>) return Kind::number;
  if constexpr (std::is_same_v<T, std::vector<std::string>>) return Kind::list;
  if constexpr (std::is_same_v<T, Kwargs>) return Kind::kwargs;
  if constexpr (std::is_enum_v<T>) return Kind::choice;
  return Kind::text;
}

template <class T>
Option option_for(std::string name, std::string group, std::string help) {
  using Inner = typename Traits<T>::Inner;
  Option option{.name = std::move(name), .group = std::move(group), .help = std::move(help)};
  option.kind = kind_of<Inner>();
  option.optional = Traits<T>::optional;
  if constexpr (std::is_enum_v<Inner>) {
    option.choices.assign(std::begin(Names<Inner>::text), std::end(Names<Inner>::text));
  }
  return option;
}

}  // namespace detail

// Adds an option for a variable, which must outlive the table. The returned Option may be modified
// until the next option is added.
template <class T>
Option& add_variable(OptionTable& table, std::string name, std::string group, std::string help,
                     T& variable, const T& default_value) {
  Option option = detail::option_for<T>(std::move(name), std::move(group), std::move(help));
  option.default_value = detail::value_of(default_value);
  option.set = [&variable](const Value& value) { return detail::assign(variable, value); };
  option.get = [&variable] { return detail::value_of(variable); };
  return table.options().emplace_back(std::move(option));
}

// Adds the fields of one struct to a table. The returned Option may be modified until the next
// field is added.
template <class Struct>
class Describer {
 public:
  Describer(OptionTable& table, Struct& object) : table_(table), object_(object) {}

  void group(std::string title) { group_ = std::move(title); }

  template <class Field>
  Option& operator()(std::string name, Field Struct::*field, std::string help) {
    return add_variable<Field>(table_, std::move(name), group_, std::move(help), object_.*field,
                               Struct{}.*field);
  }

  // Adds a known name without a field. T is its type (AnyText for any type). A value equal to the
  // default has no effect.
  template <class T>
  Option& unimplemented(std::string name, std::string reason, T default_value = T{}) {
    return add_without_field(std::move(name), std::move(default_value), Status::unimplemented,
                             std::move(reason));
  }
  template <class T>
  Option& refused(std::string name, std::string reason, T default_value = T{}) {
    return add_without_field(std::move(name), std::move(default_value), Status::refused,
                             std::move(reason));
  }
  template <class T>
  Option& no_effect(std::string name, std::string reason, T default_value = T{}) {
    return add_without_field(std::move(name), std::move(default_value), Status::no_effect,
                             std::move(reason));
  }

 private:
  template <class T>
  Option& add_without_field(std::string name, T default_value, Status status, std::string reason) {
    auto stored = std::make_shared<T>(std::move(default_value));
    Option option = detail::option_for<T>(std::move(name), group_, "");
    option.has_field = false;
    option.status = status;
    option.reason = std::move(reason);
    option.default_value = detail::value_of(*stored);
    option.set = [stored](const Value& value) { return detail::assign(*stored, value); };
    option.get = [stored] { return detail::value_of(*stored); };
    return table_.options().emplace_back(std::move(option));
  }

  OptionTable& table_;
  Struct& object_;
  std::string group_;
};

}  // namespace hasten::config
