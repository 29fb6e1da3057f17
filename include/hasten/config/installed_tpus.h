// File: hasten/config/installed_tpus.h
// The TPUs of this machine as its PCI bus lists them, without asking any library, and how many
// processes they are for.
//
//   config::installed_tpus()                      // {"v5e", "v5e", "v5e", "v5e"}
//   config::why_no_tpu(environment)               // "", or what is missing
//   config::tpu_processes(environment)            // 4: a process for each
//
// Needs no torch, and loads nothing. Thread rule: any thread. tpu_chips throws ConfigError
// "launch.environment"; the others only for lack of memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hasten/config/sources.h"

namespace hasten::config {

// The generation of each device that a process of its own may have: v4, v5p, v5e, v6e: a chip;
// tpu7x: half of one. Each is a folder in `devices`. Where some are in `exposed`, by their group,
// the others are not for this machine: a container may have a part of the chips.
std::vector<std::string> installed_tpus(const std::string& devices = "/sys/bus/pci/devices",
                                        const std::string& exposed = "/dev/vfio");

// Whether TPU_LIBRARY_PATH names a plugin in the place of Google's libtpu.so; it may be for
// anything.
bool names_tpu_plugin(const Environment& environment);

// Empty where device `tpu` has something to open: installed, or such a plugin. Else what is
// missing.
std::string why_no_tpu(const Environment& environment);

// The chips that TPU_VISIBLE_DEVICES, else TPU_VISIBLE_CHIPS, leaves to this machine's processes;
// unset: all.
std::optional<std::vector<std::string>> tpu_chips(const Environment& environment);

// A process for each chip. Where a plugin is all there is, nobody knows: 8, as Accelerate has it.
std::int64_t tpu_processes(const Environment& environment);

}  // namespace hasten::config
