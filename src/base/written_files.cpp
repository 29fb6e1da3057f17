#include "base/written_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <compare>
#include <mutex>
#include <utility>

#include "base/crc32.h"
#include "base/file_calls.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

// Identifies a file and its content: a program that writes to the file changes the time.
struct FileIdentity {
  dev_t device;
  ino_t number;
  off_t bytes;
  time_t seconds;
  long nanoseconds;
  friend auto operator<=>(const FileIdentity&, const FileIdentity&) = default;
};

std::optional<FileIdentity> identity_of(const fs::path& file) {
  struct stat status {};
  if (::lstat(file.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return FileIdentity{.device = status.st_dev,
                      .number = status.st_ino,
                      .bytes = status.st_size,
                      .seconds = status.st_mtim.tv_sec,
                      .nanoseconds = status.st_mtim.tv_nsec};
}

using RecordedFolder = std::map<FileIdentity, WrittenFile>;

struct RecordedFolders {
  std::mutex mutex;
  std::map<fs::path, RecordedFolder> folders;

  // Returns the recorded folder that the file is in, or null. The caller holds the mutex.
  RecordedFolder* folder_of(const fs::path& file) {
    for (fs::path each = normal_path(file).parent_path(); each.has_relative_path();
         each = each.parent_path()) {
      if (const auto found = folders.find(each); found != folders.end()) return &found->second;
    }
    return nullptr;
  }
};

// Never destroyed, because a save in the background may still run while the process exits.
RecordedFolders& recorded() {
  static auto& all = *new RecordedFolders;
  return all;
}

bool is_recorded(const fs::path& file) {
  const std::lock_guard lock(recorded().mutex);
  return recorded().folder_of(file) != nullptr;
}

}  // namespace

void record_written_files(const fs::path& folder) {
  const std::lock_guard lock(recorded().mutex);
  recorded().folders[normal_path(folder)].clear();
}

void forget_written_files(const fs::path& folder) {
  const std::lock_guard lock(recorded().mutex);
  recorded().folders.erase(normal_path(folder));
}

std::optional<WrittenFile> written_file(const fs::path& file) {
  const auto identity = identity_of(file);
  const std::lock_guard lock(recorded().mutex);
  const RecordedFolder* const folder = recorded().folder_of(file);
  if (folder == nullptr || !identity) return std::nullopt;
  const auto found = folder->find(*identity);
  return found == folder->end() ? std::nullopt : std::optional(found->second);
}

RecordedFile::RecordedFile(const fs::path& path) : path_(path), file_(path) {
  if (is_recorded(path)) checksum_.emplace();
}

void RecordedFile::write(std::string_view bytes) {
  std::uint32_t unused = 0;
  write_recorded(bytes, unused);
}

void RecordedFile::write_part(const std::string& name, std::string_view bytes) {
  write_recorded(bytes, parts_[name]);
}

void RecordedFile::commit() {
  file_.commit();
  if (!checksum_) return;
  // A network file system may set the time when the file is closed.
  const auto identity = identity_of(path_);
  const std::lock_guard lock(recorded().mutex);
  RecordedFolder* const folder = recorded().folder_of(path_);
  if (folder == nullptr || !identity) return;
  (*folder)[*identity] = {.checksum = checksum_->finish(), .parts = std::move(parts_)};
}

void RecordedFile::write_recorded(std::string_view bytes, std::uint32_t& part) {
  if (!checksum_) return file_.write(bytes);
  // A block is still in the CPU's cache when the system copies it.
  constexpr std::size_t kBlockBytes = 1 << 20;
  for (; !bytes.empty(); bytes.remove_prefix(std::min(kBlockBytes, bytes.size()))) {
    const std::string_view block = bytes.substr(0, kBlockBytes);
    checksum_->add(block);
    part = crc32c(block, part);
    file_.write(block);
  }
}

}  // namespace hasten
