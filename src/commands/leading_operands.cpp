#include "commands/leading_operands.h"

#include <algorithm>

#include "hasten/base/text.h"
#include "options/sources.h"

namespace hasten {

std::vector<std::string> read_operands(config::OptionTable& table,
                                       const std::vector<std::string>& words) {
  const auto first_option = std::find_if(
      words.begin(), words.end(), [](const std::string& word) { return starts_with(word, "-"); });
  config::apply_flags(table, config::read_flags(table, {first_option, words.end()}));
  return {words.begin(), first_option};
}

}  // namespace hasten
