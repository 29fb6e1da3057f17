#include <algorithm>
#include <string_view>

#include "base/did_you_mean.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "options/sources.h"
#include "options/value.h"

namespace hasten::config {
namespace {

bool is_flag(std::string_view argument) {
  return starts_with(argument, "--") && argument.size() > 2;
}

// Returns true if a flag takes the argument after it as its value. A boolean flag may stand alone.
// It takes only a truth value or, if its option may be unset, "none". A flag without an option
// (null), such as --no_bf16, is read like a boolean flag, so that a value after it is an error.
bool takes_as_value(const Option* option, const std::string& argument) {
  if (option != nullptr && option->kind != Kind::boolean) return true;
  return parse_bool(argument) ||
         (option != nullptr && option->optional && detail::means_unset(argument));
}

// The parts of `--name` or `--name=value`.
struct Flag {
  std::string name;
  std::optional<std::string> value;
};

Flag split_flag(std::string_view argument) {
  argument.remove_prefix(2);
  const auto equals = argument.find('=');
  Flag flag{.name = std::string(argument.substr(0, equals)), .value = std::nullopt};
  std::replace(flag.name.begin(), flag.name.end(), '-', '_');
  if (equals != std::string_view::npos) flag.value = std::string(argument.substr(equals + 1));
  return flag;
}

// Returns what to do about an argument that belongs to no option. `before` is the boolean option
// that precedes it, or null.
std::string hint_for_unexpected(const std::string& argument, const Option* before) {
  if (ends_with(argument, ".yaml") || ends_with(argument, ".yml") || ends_with(argument, ".json"))
    return "name a configuration file with --config_file " + argument;
  if (before != nullptr) return "--" + before->name + " takes true, false or no value";
  return "write every option as --name value";
}

class FlagReader {
 public:
  FlagReader(const OptionTable& table, const std::vector<std::string>& arguments)
      : table_(table), arguments_(arguments) {}

  std::vector<Assignment> read() {
    while (at_ < arguments_.size()) {
      const std::string argument = arguments_[at_++];
      if (!is_flag(argument)) {
        throw ConfigError("config.unexpected-argument",
                          {.what = "unexpected argument '" + argument + "'",
                           .hint = hint_for_unexpected(argument, boolean_before(at_ - 1))});
      }
      read_one(split_flag(argument));
    }
    return std::move(assignments_);
  }

 private:
  void read_one(const Flag& flag) {
    const Option* option = table_.find(flag.name);
    if (!option) return read_negated(flag);
    if (flag.value && option->keeps_commas) return append(flag.name, {*flag.value});
    if (flag.value) return add(flag.name, *flag.value);
    switch (option->kind) {
      case Kind::boolean:
        return add(flag.name, next_is_boolean(*option) ? arguments_[at_++] : std::string("true"));
      case Kind::list:
        if (option->keeps_commas) return append(flag.name, next_items(*option, flag.name));
        return add(flag.name, next_items(*option, flag.name));
      default:
        return add(flag.name, next(*option, flag.name));
    }
  }

  // Returns the boolean option whose flag is the argument before this position, or null.
  const Option* boolean_before(std::size_t at) const {
    if (at == 0 || !is_flag(arguments_[at - 1])) return nullptr;
    const Flag flag = split_flag(arguments_[at - 1]);
    const Option* const option = flag.value ? nullptr : table_.find(flag.name);
    return option != nullptr && option->kind == Kind::boolean ? option : nullptr;
  }

  // Reads `--no_bf16` if there is a flag bf16.
  void read_negated(const Flag& flag) {
    const Option* option =
        starts_with(flag.name, "no_") ? table_.find(flag.name.substr(3)) : nullptr;
    if (!option || option->kind != Kind::boolean) return throw_unknown_flag(flag.name);
    if (flag.value) {
      throw ConfigError("config.bad-value", {.what = "--" + flag.name,
                                             .got = "'" + *flag.value + "'",
                                             .expected = "no value, because the name means false"});
    }
    add(flag.name, std::string("false"));
    assignments_.back().key = flag.name.substr(3);
  }

  void throw_unknown_flag(const std::string& name) {
    const Origin origin{Origin::Source::flag, "--" + name};
    if (starts_with(name, "no_")) {
      const auto near = nearest(name.substr(3), table_.names());
      const Option* option = near ? table_.find(*near) : nullptr;
      if (option && option->kind == Kind::boolean) {
        throw ConfigError("config.unknown-key", {.what = "unknown argument --" + name,
                                                 .hint = did_you_mean("--no_" + *near)});
      }
    }
    throw_unknown(table_, name, origin);
  }

  bool next_is_boolean(const Option& option) const {
    return at_ < arguments_.size() && takes_as_value(&option, arguments_[at_]);
  }
  bool next_is_value() const { return at_ < arguments_.size() && !is_flag(arguments_[at_]); }

  std::string next(const Option& option, const std::string& name) {
    if (!next_is_value()) {
      throw ConfigError("config.missing-value",
                        {.what = "--" + name + " has no value", .expected = option.expected()});
    }
    return arguments_[at_++];
  }

  std::vector<std::string> next_items(const Option& option, const std::string& name) {
    std::vector<std::string> items;
    do {
      if (option.keeps_commas) {
        items.push_back(next(option, name));
        continue;
      }
      for (const std::string& item : split(next(option, name), ',')) {
        if (!trim(item).empty()) items.emplace_back(trim(item));
      }
    } while (next_is_value());
    return items;
  }

  void add(const std::string& name, Value value) {
    assignments_.push_back(as_flag(name, std::move(value)));
  }

  // Appends items to the earlier items of the same flag.
  void append(const std::string& name, std::vector<std::string> items) {
    for (Assignment& given : assignments_) {
      auto* const before = std::get_if<std::vector<std::string>>(&given.value);
      if (given.key != name || before == nullptr) continue;
      before->insert(before->end(), items.begin(), items.end());
      return;
    }
    add(name, std::move(items));
  }

  const OptionTable& table_;
  const std::vector<std::string>& arguments_;
  std::size_t at_ = 0;
  std::vector<Assignment> assignments_;
};

}  // namespace

Assignment as_flag(const std::string& name, Value value) {
  return {.key = name,
          .value = std::move(value),
          .origin = {Origin::Source::flag, "--" + name},
          .places = {}};
}

bool asks_for_help(const std::vector<std::string>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const std::string& argument) {
    return argument == "--help" || argument == "-h";
  });
}

std::size_t operand_index(const OptionTable& table, const std::vector<std::string>& arguments) {
  std::size_t at = 0;
  while (at < arguments.size()) {
    const std::string& argument = arguments[at];
    if (argument == "--") return at + 1;
    if (!starts_with(argument, "-")) return at;
    ++at;
    if (at == arguments.size() || argument.find('=') != argument.npos) continue;
    const std::string name =
        argument.substr(std::min(argument.find_first_not_of('-'), argument.size()));
    if (takes_as_value(table.find(name), arguments[at])) ++at;
  }
  return at;
}

std::vector<Assignment> read_flags(const OptionTable& table,
                                   const std::vector<std::string>& arguments) {
  return FlagReader(table, arguments).read();
}

}  // namespace hasten::config
