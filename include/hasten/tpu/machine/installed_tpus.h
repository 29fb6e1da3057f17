// File: hasten/tpu/machine/installed_tpus.h
// Lists the TPUs of this machine as its PCI bus reports them, without loading a library, and how
// many processes they are for.
//
//   const config::Environment environment = config::whole_environment();
//   config::installed_tpus();                      // {"v5e", "v5e", "v5e", "v5e"}
//   config::missing_tpu_reason(environment);       // "", or what is missing
//   config::tpu_processes(environment);            // 4: one for each chip
//
// Needs no torch. Thread rule: any thread. tpu_chips and tpu_processes throw ConfigError
// "launch.environment"; only lack of memory makes the others throw.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hasten/base/export.h"
#include "hasten/options/environment.h"

namespace hasten::config {

// The generation of each device that one process can own: "v4", "v5p", "v5e" and "v6e" are whole
// chips, "7x" is half of a chip. `devices` holds a folder for each PCI device. If the IOMMU groups
// of some are in `exposed`, only those are returned, since a container may have a part of the
// chips.
HASTEN_API std::vector<std::string> installed_tpus(
    const std::string& devices = "/sys/bus/pci/devices", const std::string& exposed = "/dev/vfio");

// True if TPU_LIBRARY_PATH names another plugin than Google's libtpu.so. It may be for any device.
HASTEN_API bool names_tpu_plugin(const Environment& environment);

// Returns "" if device `tpu` can be opened, because a TPU is installed or a plugin is named;
// otherwise what is missing.
HASTEN_API std::string missing_tpu_reason(const Environment& environment);

// The chips that TPU_VISIBLE_DEVICES, or else TPU_VISIBLE_CHIPS, leaves to the processes of this
// machine. Unset: all chips.
HASTEN_API std::optional<std::vector<std::string>> tpu_chips(const Environment& environment);

// How many processes to start: one for each chip. 8, as in Accelerate, if no TPU is installed,
// since a plugin does not report its chips.
HASTEN_API std::int64_t tpu_processes(const Environment& environment);

}  // namespace hasten::config
