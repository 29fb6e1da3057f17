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
// libtpu's lock.
std::vector<std::filesystem::path> chip_files(
    const std::filesystem::path& devices = "/dev",
    const std::filesystem::path& lock = "/tmp/libtpu_lockfile");

// This process does not count.
std::optional<ChipHolder> holder_of(const std::vector<std::filesystem::path>& files);

}  // namespace hasten
