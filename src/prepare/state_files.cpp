#include "prepare/state_files.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "base/json_number.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

std::vector<std::int64_t> whole_numbers_from(const nlohmann::json& list, const char* what) {
  std::vector<std::int64_t> numbers;
  for (const nlohmann::json& each : list) {
    const std::optional<std::int64_t> number = whole_number_in(each);
    if (!number) throw JsonError(str(what, " that is not a whole number of 64 bits"));
    numbers.push_back(*number);
  }
  return numbers;
}

}  // namespace

std::string numbered_file(const char* what, std::size_t number) {
  return str(what, number == 0 ? "" : str('_', number), ".safetensors");
}

std::string object_file(std::size_t number) {
  return str("custom_checkpoint_", number, ".safetensors");
}

nlohmann::json position_to_json(const detail::SavedPosition& position, std::size_t number,
                                TensorDict& generators) {
  if (position.is_hasten_loader) {
    return {{"seed", position.loader.seed},
            {"epoch", position.loader.epoch},
            {"batch", position.loader.batch},
            {"rows", position.loader.rows}};
  }
  if (position.pass.batches > 0 && position.pass.generator.defined())
    generators[str("loader.", number)] = position.pass.generator;
  return {{"batches", position.pass.batches}};
}

detail::SavedPosition position_from_json(const nlohmann::json& json, std::size_t number,
                                         const TensorDict& generators) {
  if (json.contains("seed")) {
    return {.is_hasten_loader = true,
            .loader = {.seed = unsigned_number_at(json, "seed"),
                       .epoch = whole_number_at(json, "epoch"),
                       .batch = whole_number_at(json, "batch"),
                       .rows = whole_number_at(json, "rows")},
            .pass = {}};
  }
  const auto generator = generators.find(str("loader.", number));
  return {.is_hasten_loader = false,
          .loader = {},
          .pass = {.batches = whole_number_at(json, "batches"),
                   .generator =
                       generator == generators.end() ? at::Tensor() : generator->second.clone()}};
}

nlohmann::json window_to_json(const OpenWindow& window) {
  return {{"models", window.models},     {"micro_batches", window.micro_batches},
          {"capacity", window.capacity}, {"backward_passes", window.backward_passes},
          {"rows", window.rows},         {"weight", window.weight}};
}

OpenWindow window_from_json(const nlohmann::json& json) {
  OpenWindow window{.models = whole_numbers_from(json.at("models"), "a model of a window"),
                    .micro_batches = whole_number_at(json, "micro_batches"),
                    .backward_passes = whole_number_at(json, "backward_passes"),
                    .weight = json.at("weight").get<double>()};
  // Earlier versions saved neither of these. The largest number has no larger one, so that window
  // counts as full.
  const std::int64_t more =
      std::min(window.micro_batches, std::numeric_limits<std::int64_t>::max() - 1) + 1;
  window.capacity = whole_number_at(json, "capacity", more);
  window.rows = whole_number_at(json, "rows", 0);
  return window;
}

nlohmann::json trackers_to_json(const TrackerSet::Positions& positions) {
  nlohmann::json by_name = nlohmann::json::object();
  for (const auto& [name, position] : positions.by_name) {
    for (const auto& [key, number] : position)
      by_name[name][key] = json_of_number<nlohmann::json>(number);
  }
  return {{"positions", std::move(by_name)}, {"step", positions.step}};
}

TrackerSet::Positions trackers_from_json(const nlohmann::json& json) {
  TrackerSet::Positions positions{.by_name = {}, .step = whole_number_at(json, "step")};
  for (const auto& [name, position] : json.at("positions").items()) {
    for (const auto& [key, value] : position.items()) {
      const std::optional<double> number = real_number_in(value);
      if (!number) throw JsonError(str("a position of the tracker ", name, " without numbers"));
      positions.by_name[name][key] = *number;
    }
  }
  return positions;
}

}  // namespace hasten
