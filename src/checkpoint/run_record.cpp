#include "checkpoint/run_record.h"

#include <torch/torch.h>

#include "checkpoint/optimizer_options.h"
#include "checkpoint/training_position.h"

namespace hasten {

bool continue_options(torch::optim::Optimizer& optimizer, const OptionsOfRun& saved,
                      const std::filesystem::path& folder) {
  nlohmann::json options = options_of(optimizer);
  if (saved.groups.size() != options.size() || saved.arguments.size() != options.size())
    return false;
  for (std::size_t i = 0; i < options.size(); ++i) {
    const nlohmann::json &before = saved.groups[i], &planned = saved.arguments[i];
    for (auto& [name, value] : options[i].items()) {
      // Another version may have other options.
      if (!before.contains(name) || !planned.contains(name)) continue;
      // A resumed run draws the random numbers of the checkpoint, whatever its seed is.
      if (planned.at(name) == value || name == "rounding_seed") value = before.at(name);
    }
  }
  check_options(optimizer, options, (folder / kTrainingPositionFile).string());
  set_options(optimizer, options);
  return true;
}

}  // namespace hasten
