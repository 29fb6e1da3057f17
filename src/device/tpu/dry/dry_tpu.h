// File: device/tpu/dry/dry_tpu.h (internal)
// What the module libhasten_dry_tpu.so has for libhasten, beside PJRT's interface for torch_tpu: a
// TPU that is not here. Its devices are those of a topology, each program is compiled for them by
// the TPU's own compiler and its results have memory but no values: what is read back is 1, or
// true.
//
//   HASTEN_DRY_TPU_TOPOLOGY    such as v5e:2x2
//   HASTEN_DRY_TPU_COMPILER    libtpu.so
//
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "hasten/config/tpus.h"

namespace hasten {

inline constexpr const char* kDryTpuTopology = "HASTEN_DRY_TPU_TOPOLOGY";
inline constexpr const char* kDryTpuCompiler = kTpuCompilerVariable;
inline constexpr const char* kDryTpuModule = "libhasten_dry_tpu.so";

}  // namespace hasten

// What follows belongs to this phase of the step.
extern "C" void hasten_dry_tpu_enter(const char* phase);
// What such a tensor takes on the device, as programs read it: LibTorch's name of its type, its
// sizes. Without padding where no program has read one like it.
extern "C" std::int64_t hasten_dry_tpu_bytes(const char* type, const std::int64_t* sizes,
                                             std::size_t dimensions);
// The account so far, as JSON (anatomy/tpu_account.cpp reads it).
extern "C" void hasten_dry_tpu_report(std::string& json);
