// File: tpu/module/dry/dry_tpu_functions.h (internal)
// The functions that the module libhasten_dry_tpu.so exports to libhasten, in addition to PJRT's
// interface for torch_tpu. The module simulates a TPU that the machine does not have. Its devices
// are those of a topology, and the TPU's own compiler compiles each program for them. Results have
// memory but no values: reading a result gives 1, or true. The module reads these environment
// variables:
//
//   HASTEN_DRY_TPU_TOPOLOGY    the topology, such as v5e:2x2
//   HASTEN_DRY_TPU_COMPILER    the path of libtpu.so
//
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/internal_api.h"
#include "tpu/machine/tpus.h"

namespace hasten {

inline constexpr const char* kDryTpuTopology = "HASTEN_DRY_TPU_TOPOLOGY";
inline constexpr const char* kDryTpuCompiler = kTpuCompilerVariable;
// torch_tpu runs operators in the program's order if this is 1.
inline constexpr const char* kTpuBlocking = "TORCH_TPU_LAUNCH_BLOCKING";
inline constexpr const char* kDryTpuModule = "libhasten_dry_tpu.so";

}  // namespace hasten

// Sets the variables above and those with which torch_tpu and an Accelerator find this module.
extern "C" HASTEN_INTERNAL_API void hasten_dry_tpu_set_environment(const char* topology,
                                                                   const char* compiler);
// Begins a phase of the step. Everything that follows belongs to it.
extern "C" HASTEN_INTERNAL_API void hasten_dry_tpu_enter(const char* phase);
// Returns the bytes that a tensor of this LibTorch type and these sizes takes on the device, in the
// form in which programs read it. If no program has read one, padding is not included.
extern "C" HASTEN_INTERNAL_API std::int64_t hasten_dry_tpu_bytes(const char* type,
                                                                 const std::int64_t* sizes,
                                                                 std::size_t dimensions);
// Sets `json` to the estimate so far (tpu/anatomy/tpu_estimate.cpp reads it).
extern "C" HASTEN_INTERNAL_API void hasten_dry_tpu_report(std::string& json);
