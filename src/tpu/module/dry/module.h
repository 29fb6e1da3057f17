// File: tpu/module/dry/module.h (internal)
// Reads how the arguments and results of a compiled program are laid out on the device, from its
// text (XLA's HloModuleProto). The program has the name of the operator that it was made for.
//
// Thread rule: a pure function.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tpu/module/dry/shape.h"

namespace hasten::dry_tpu {

struct CompiledModule {
  std::string name;
  std::vector<Shape> parameters, results;
  // For each result, the parameter that gives it its memory, or -1.
  std::vector<std::int64_t> donated_parameters;
};

// `format` is PJRT's name, "hlo" or "hlo_with_config". Returns nullopt for a different format and
// for malformed text.
std::optional<CompiledModule> read_module(std::string_view format, std::string_view text);

}  // namespace hasten::dry_tpu
