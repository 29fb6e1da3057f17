// File: tpu/module/dry/module.h (internal)
// Reads from a compiled program's text (XLA's HloModuleProto) how its arguments and results are
// laid out on the device. The program has the name of the operator that it was made for.
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
  // By result: the parameter whose memory it takes over, or -1.
  std::vector<std::int64_t> donated_parameters;
};

// `format` is PJRT's name, "hlo" or "hlo_with_config". Returns nullopt if the format is another one
// or the text is malformed.
std::optional<CompiledModule> read_module(std::string_view format, std::string_view text);

}  // namespace hasten::dry_tpu
