#include "commands/leading_operands.h"

#include <algorithm>

#include "hasten/base/text.h"
#include "options/sources.h"

namespace hasten {

std::vector<std::string> read_operands(config::OptionTable& table,
                                       const std::vector<std::string>& arguments) {
  const auto first_option =
      std::find_if(arguments.begin(), arguments.end(),
                   [](const std::string& argument) { return starts_with(argument, "-"); });
  config::apply_flags(table, config::read_flags(table, {first_option, arguments.end()}));
  return {arguments.begin(), first_option};
}

}  // namespace hasten
