#include "prepare/state_files.h"

#include "base/json_number.h"
#include "hasten/base/text.h"

namespace hasten {

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

}  // namespace hasten
