#include "hasten/search/detail/trial_arguments.h"

#include <filesystem>
#include <vector>

#include "hasten/base/text.h"
#include "options/sources.h"

namespace hasten {

TrainingArguments arguments_for(const Trial& trial, TrainingArguments arguments) {
  config::OptionTable table;
  describe(table, arguments);
  std::vector<config::Assignment> values;
  for (const auto& [name, value] : trial.parameters()) {
    if (table.find(name) == nullptr) config::throw_unknown(table, name, {});
    values.push_back(config::as_flag(name, value));
  }
  config::apply_flags(table, values);
  arguments.output_dir =
      (std::filesystem::path(arguments.output_dir) / str("run-", trial.number())).string();
  arguments.overwrite_output_dir = true;
  return arguments;
}

}  // namespace hasten
