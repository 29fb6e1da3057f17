// File: hasten/config/tpus.h
// The TPU topologies that a prediction can be made for on a machine without a TPU, by name, and the
// compiler that makes it.
//
//   const TpuTopology topology = parse_tpu_topology("v5e:2x2");
//   topology.chips;                                         // 4
//   find_libtpu(config::whole_environment());               // ".../libtpu/libtpu.so"
//
// What a chip has is not kept here: libtpu tells it. Needs no torch. Thread rule: pure functions
// but for the files that find_libtpu looks for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hasten/config/sources.h"

namespace hasten {

struct TpuTopology {
  std::string name;        // as libtpu takes it: v5e:2x2
  std::string chip;        // v4, v5e, v5p, v6e, tpu7x
  std::int64_t chips = 0;  // in all
};

// "CHIP:AxB" or "CHIP:AxBxC", as many sizes as the chip's network has dimensions. Throws
// ConfigError "config.unknown-device".
TpuTopology parse_tpu_topology(std::string_view name);

// libtpu.so: HASTEN_LIBTPU, else that of the Python package libtpu in the active environment
// (VIRTUAL_ENV), in PYTHONPATH or in one of `folders` (site-packages). Throws IoError
// "device.tpu-compiler" with the line that installs it.
std::string find_libtpu(const config::Environment& environment,
                        const std::vector<std::string>& folders = {});

// Where the commands tell the programs they start which compiler it is.
inline constexpr const char* kTpuCompilerVariable = "HASTEN_DRY_TPU_COMPILER";

// A device of an estimate, "tpu:v5e:2x2".
inline constexpr std::string_view kTpuDevice = "tpu:";

}  // namespace hasten
