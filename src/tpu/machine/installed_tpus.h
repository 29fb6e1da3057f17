// File: tpu/machine/installed_tpus.h (internal)
// Lists the TPUs that the PCI bus of this machine reports, without loading a library, and returns
// how many processes to start for them.
//
//   const config::Environment environment = config::whole_environment();
//   config::installed_tpus();                      // {"v5e", "v5e", "v5e", "v5e"}
//   config::missing_tpu_reason(environment);       // "", or what is missing
//   config::tpu_processes(environment);            // 4: one for each chip
//
// Needs no torch. Thread rule: any thread. tpu_chips and tpu_processes throw ConfigError
// "launch.environment"; the others throw only if memory runs out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/internal_api.h"
#include "hasten/options/detail/environment.h"

namespace hasten::config {

// The generation of each device that one process can own: "v4", "v5p", "v5e" and "v6e" are whole
// chips, "7x" is half of a chip. `devices` holds a folder for each PCI device. If `exposed`
// contains the IOMMU groups of some devices, only those are returned, since a container may have
// only a part of the chips.
HASTEN_INTERNAL_API std::vector<std::string> installed_tpus(
    const std::string& devices = "/sys/bus/pci/devices", const std::string& exposed = "/dev/vfio");

// True if TPU_LIBRARY_PATH names a plugin other than Google's libtpu.so. The plugin may be for any
// device.
HASTEN_INTERNAL_API bool names_tpu_plugin(const Environment& environment);

// Returns "" if device `tpu` can be opened, because a TPU is installed or a plugin is named;
// otherwise what is missing.
HASTEN_INTERNAL_API std::string missing_tpu_reason(const Environment& environment);

// The chips that TPU_VISIBLE_DEVICES, or else TPU_VISIBLE_CHIPS, lists for the processes of this
// machine. Unset: all chips.
HASTEN_INTERNAL_API std::optional<std::vector<std::string>> tpu_chips(
    const Environment& environment);

// How many processes to start: one for each chip. 8, as in Accelerate, if no TPU is installed,
// since a plugin does not report its chips.
HASTEN_INTERNAL_API std::int64_t tpu_processes(const Environment& environment);

}  // namespace hasten::config
