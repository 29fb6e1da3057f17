// File: tpu/device/chip_holder.h (internal)
// Finds the process that has a TPU: the first one that holds one of the TPU's files open. Processes
// of other users cannot be seen. Thread rule: any thread.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace hasten {

struct ChipHolder {
  pid_t process;
  std::string name;  // the name of its program
  std::filesystem::path file;
};

// Returns the files that a process with TPUs of this machine holds open: device files below
// `devices`, and libtpu's lock. If `chips` lists the numbers of some chips, returns only the device
// files accelN of these chips. It then leaves out vfio's files, because they have the number of a
// group of chips, and the lock, because it may belong to other chips.
std::vector<std::filesystem::path> chip_files(
    const std::optional<std::vector<std::string>>& chips = {},
    const std::filesystem::path& devices = "/dev",
    const std::filesystem::path& lock = "/tmp/libtpu_lockfile");

// Returns the first process, other than this one, that holds one of `files` open.
std::optional<ChipHolder> find_chip_holder(const std::vector<std::filesystem::path>& files);

}  // namespace hasten
