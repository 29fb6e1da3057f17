// File: tpu/machine/tpus.h (internal)
// The TPU topologies for which a machine without a TPU can make predictions, and the compiler that
// a prediction needs.
//
//   const TpuTopology topology = parse_tpu_topology("v5e:2x2");
//   topology.chips;                                         // 4
//   find_libtpu(config::whole_environment());               // ".../libtpu/libtpu.so"
//
// The properties of a chip are not kept here, since libtpu reports them. Needs no torch. Thread
// rule: pure functions, except that find_libtpu looks for files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/internal_api.h"
#include "hasten/options/detail/environment.h"

namespace hasten {

struct TpuTopology {
  std::string name;        // In libtpu's format: v5e:2x2.
  std::string chip;        // v4, v5e, v5p, v6e or tpu7x.
  std::int64_t chips = 0;  // The number of all chips.
};

// Parses "CHIP:AxB" or "CHIP:AxBxC", with one size for each dimension of the chip's network. Throws
// ConfigError "config.unknown-device".
HASTEN_INTERNAL_API TpuTopology parse_tpu_topology(std::string_view name);

// Returns the path of libtpu.so: HASTEN_LIBTPU, or else the file in the Python package libtpu in
// the active environment (VIRTUAL_ENV), in PYTHONPATH, or in one of `folders` (site-packages).
// Throws IoError "device.tpu-compiler" with the command that installs it.
HASTEN_INTERNAL_API std::string find_libtpu(const config::Environment& environment,
                                            const std::vector<std::string>& folders = {});

// The environment variable that gives a program the path of libtpu.so for a dry run.
inline constexpr const char* kTpuCompilerVariable = "HASTEN_DRY_TPU_COMPILER";

// The prefix of a TPU device in an estimate, such as "tpu:v5e:2x2".
inline constexpr std::string_view kTpuDevice = "tpu:";

}  // namespace hasten
