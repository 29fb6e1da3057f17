#include "commands/command_operands.h"

#include <algorithm>

#include "hasten/base/text.h"
#include "options/sources.h"

namespace hasten {
namespace {

using Arguments = std::vector<std::string>;

// Returns the option that a flag such as --max_shard_size names, or null.
const config::Option* option_of_flag(const config::OptionTable& table, const std::string& flag) {
  return starts_with(flag, "--") ? table.find(flag.substr(2)) : nullptr;
}

// Returns the position after the option at this position and its values.
Arguments::const_iterator end_of_option(const config::OptionTable& table,
                                        Arguments::const_iterator flag,
                                        Arguments::const_iterator end) {
  const auto is_flag = [](const std::string& argument) { return starts_with(argument, "--"); };
  const auto value = flag + 1;
  if (value == end || is_flag(*value) || flag->find('=') != std::string::npos) return value;
  const config::Option* const option = option_of_flag(table, *flag);
  if (option != nullptr && option->kind == config::Kind::list)
    return std::find_if(value, end, is_flag);
  // If the argument after the flag is its value, it is no operand.
  return config::operand_index(table, {*flag, *value}) == 1 ? value : value + 1;
}

}  // namespace

std::vector<std::string> read_operands(config::OptionTable& table,
                                       const std::vector<std::string>& arguments) {
  Arguments operands, options;
  for (auto at = arguments.begin(); at != arguments.end();) {
    if (*at == "--") {
      operands.insert(operands.end(), at + 1, arguments.end());
      break;
    }
    if (!starts_with(*at, "-")) {
      operands.push_back(*at++);
      continue;
    }
    const auto end = end_of_option(table, at, arguments.end());
    options.insert(options.end(), at, end);
    at = end;
  }
  config::apply_flags(table, config::read_flags(table, options));
  return operands;
}

}  // namespace hasten
