#include "tpu/device/chip_holder.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "base/first_line.h"
#include "base/parse_number.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

bool is_number(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](unsigned char letter) { return std::isdigit(letter); });
}

// Returns the entries of a folder. The list is shorter if an entry disappears or is not readable.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code none;
  for (fs::directory_iterator at(folder, none), end; !none && at != end; at.increment(none))
    entries.push_back(at->path());
  return entries;
}

}  // namespace

std::vector<fs::path> chip_files(const std::optional<std::vector<std::string>>& chips,
                                 const fs::path& devices, const fs::path& lock) {
  if (chips) {
    std::vector<fs::path> files;
    for (const std::string& chip : *chips) files.push_back(devices / ("accel" + chip));
    return files;
  }
  std::vector<fs::path> files = {lock};
  for (const fs::path& entry : entries_of(devices)) {
    const std::string name = entry.filename().string();
    if (name.starts_with("accel") && is_number(name.substr(5))) files.push_back(entry);
  }
  // The numbered entries are the groups of chips. All of them share /dev/vfio/vfio.
  for (const fs::path& entry : entries_of(devices / "vfio")) {
    if (is_number(entry.filename().string())) files.push_back(entry);
  }
  return files;
}

std::optional<ChipHolder> find_chip_holder(const std::vector<fs::path>& files) {
  for (const fs::path& process : entries_of("/proc")) {
    const auto number = parse_number<pid_t>(process.filename().string());
    if (!number || *number == getpid()) continue;
    for (const fs::path& descriptor : entries_of(process / "fd")) {
      std::error_code none;
      const fs::path open = fs::read_symlink(descriptor, none);
      if (none || std::find(files.begin(), files.end(), open) == files.end()) continue;
      return ChipHolder{.process = *number, .name = first_line(process / "comm"), .file = open};
    }
  }
  return std::nullopt;
}

}  // namespace hasten
