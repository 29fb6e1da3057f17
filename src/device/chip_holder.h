// File: device/chip_holder.h (internal)
// Who has a TPU: the first process that holds one of its files open. Another user's processes are
// not seen. Thread rule: any thread.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace hasten {

struct ChipHolder {
  pid_t process;
  std::string name;  // of its program
  std::filesystem::path file;
};

// What a process that has TPUs of this machine holds open: their device files below `devices`, and
// libtpu's lock. Of some chips alone, by their numbers, only the files that have these numbers: a
// group's number (vfio) is none of a chip, and the lock may be of others.
std::vector<std::filesystem::path> chip_files(
    const std::optional<std::vector<std::string>>& chips = {},
    const std::filesystem::path& devices = "/dev",
    const std::filesystem::path& lock = "/tmp/libtpu_lockfile");

// This process does not count.
std::optional<ChipHolder> holder_of(const std::vector<std::filesystem::path>& files);

}  // namespace hasten
