// File: device/tpu/dry/module.h (internal)
// What of a compiled program's text (XLA's HloModuleProto) tells where its arguments and results
// lie on the device. The program's name is that of the operator it was made for.
//
// Thread rule: a pure function.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/tpu/dry/shape.h"

namespace hasten::dry_tpu {

struct CompiledModule {
  std::string name;
  std::vector<Shape> parameters, results;
  // For each result the parameter whose memory it takes over, or -1.
  std::vector<std::int64_t> taken_over;
};

// `format` is PJRT's: "hlo", or "hlo_with_config". Nothing where the text is of neither, or broken.
std::optional<CompiledModule> read_module(std::string_view format, std::string_view text);

}  // namespace hasten::dry_tpu
