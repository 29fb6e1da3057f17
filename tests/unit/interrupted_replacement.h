// Leaves what a process leaves that is killed while it replaces a folder on a file system that
// cannot swap two folders: the old folder was moved aside, and the new one has no name yet.
//
//   interrupt_replacement(folder / "checkpoint-20");
//   interrupt_replacement(folder / "checkpoint-20", writer_tag());   // as a living process
#pragma once

#include <filesystem>
#include <string>

#include "base/unfinished_files.h"

namespace hasten {

// A process of another machine. Nobody knows whether it has ended.
inline constexpr const char* kElsewhere = "999999999-1-elsewhere.0a1b2c3d";

inline void interrupt_replacement(const std::filesystem::path& folder,
                                  const std::string& writer = kElsewhere) {
  const std::string hidden = '.' + folder.filename().string();
  std::filesystem::create_directory(folder.parent_path() / (hidden + kPartial + writer));
  std::filesystem::rename(folder, folder.parent_path() / (hidden + kReplaced + writer));
}

}  // namespace hasten
