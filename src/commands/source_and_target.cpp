#include "commands/source_and_target.h"

#include <algorithm>

#include "hasten/base/text.h"

namespace hasten {

SourceAndTarget::SourceAndTarget(const std::vector<std::string>& words) {
  const auto first_option = std::find_if(
      words.begin(), words.end(), [](const std::string& word) { return starts_with(word, "-"); });
  count = static_cast<std::size_t>(first_option - words.begin());
  if (count > 0) from = words[0];
  if (count > 1) to = words[1];
  options.assign(first_option, words.end());
}

}  // namespace hasten
