// Files and folders that exist complete or not at all.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

#include "base/atomic_files.h"
#include "base/file_calls.h"
#include "base/sync_tree.h"
#include "base/unfinished_files.h"
#include "base/written_files.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

// The folders that StagedDirectory objects of this process are writing. Two objects for one target
// would use the same folder, and the second would delete the files of the first.
class StagedPaths {
 public:
  // Returns false if the path has another writer.
  static bool add(const fs::path& path, const StagedDirectory* writer) {
    const std::lock_guard lock(own().mutex_);
    return own().writers_.emplace(key_of(path), writer).second;
  }
  // Also forgets the checksums of the writer's files. Does nothing if the path has another writer.
  static void remove(const fs::path& path, const StagedDirectory* writer) {
    const std::lock_guard lock(own().mutex_);
    const auto found = own().writers_.find(key_of(path));
    if (found == own().writers_.end() || found->second != writer) return;
    own().writers_.erase(found);
    forget_written_files(path);
  }

 private:
  // Never destroyed, because a save in the background may still run while the process exits.
  static StagedPaths& own() {
    static auto* const all = new StagedPaths;
    return *all;
  }
  static std::string key_of(const fs::path& path) { return normal_path(path).string(); }

  std::mutex mutex_;
  std::map<std::string, const StagedDirectory*> writers_;
};

// True if the file is in a folder that this process stages. StagedDirectory::commit() syncs such a
// file, so AtomicFile::commit() need not.
bool is_staged_here(const fs::path& path) {
  const fs::path folder = parent_folder(path);
  if (folder.native().find(kPartial) == std::string::npos) return false;
  const std::string ending = kPartial + writer_tag();
  return std::any_of(folder.begin(), folder.end(), [&](const fs::path& part) {
    return part.native().starts_with('.') && ends_with(part.native(), ending);
  });
}

// Returns a hidden name next to `target` that contains its name and this process.
fs::path hidden_name(const fs::path& target, const char* kind) {
  return parent_folder(target) / str('.', target.filename().string(), kind, writer_tag());
}

// Swaps the two folders in one step. Returns false if the file system cannot do that.
bool exchange_folders(const fs::path& hidden, const fs::path& target) {
  if (::renameat2(AT_FDCWD, hidden.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0)
    return true;
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP)
    throw_file_error("io.rename", "cannot replace", target, errno);
  return false;
}

// Swaps the two folders in several steps: the old folder is moved aside first. If the process
// crashes between the first two renames, the old folder stays there, complete, and
// restore_replaced_folders restores it. A process on another machine may do so even while this one
// is alive, and then both renames are repeated. It takes a folder with the name of an unfinished
// one as the sign that the renames were interrupted.
void swap_in_steps(const fs::path& hidden, const fs::path& target) {
  const fs::path set_aside = hidden_name(target, kReplaced);
  constexpr int kMaxTries = 10;
  for (int tries = 1;; ++tries) {
    remove_all_quietly(set_aside);
    if (::rename(target.c_str(), set_aside.c_str()) != 0) {
      throw_file_error("io.rename", "cannot move aside", target, errno);
    }
    if (::rename(hidden.c_str(), target.c_str()) == 0) break;
    const int error = errno;
    const bool was_restored = error == ENOTEMPTY || error == EEXIST;
    if (was_restored && tries < kMaxTries) continue;
    ::rename(set_aside.c_str(), target.c_str());
    throw_file_error("io.rename", "cannot replace", target, error);
  }
  ::rename(set_aside.c_str(), hidden.c_str());
}

// Swaps the two folders; `staged`, the unfinished folder of this process, then names the old one.
void replace_directory(const fs::path& staged, const fs::path& target) {
  if (!exchange_folders(staged, target)) swap_in_steps(staged, target);
}

// An empty folder with the name of an unfinished one, which is the sign that swap_in_steps() needs.
class ReplacementSign {
 public:
  explicit ReplacementSign(const fs::path& target) : path_(hidden_name(target, kPartial)) {
    if (::mkdir(path_.c_str(), 0777) != 0 && errno != EEXIST)
      throw_file_error("io.mkdir", "cannot create the folder", path_, errno);
  }
  ReplacementSign(const ReplacementSign&) = delete;
  ReplacementSign& operator=(const ReplacementSign&) = delete;
  ~ReplacementSign() { ::rmdir(path_.c_str()); }

 private:
  fs::path path_;
};

// Call it after writing `size` bytes. Starts writing every piece of the file that is now complete
// to the disk, so that the sync at the end has little to wait for. That sync reports errors.
void start_writeback(int file, std::size_t size) {
  constexpr off_t kChunkBytes = 32 << 20;
  const off_t position = ::lseek(file, 0, SEEK_CUR);
  const off_t begin = (position - static_cast<off_t>(size)) / kChunkBytes * kChunkBytes;
  const off_t end = position / kChunkBytes * kChunkBytes;
  if (position >= 0 && end > begin)
    static_cast<void>(::sync_file_range(file, begin, end - begin, SYNC_FILE_RANGE_WRITE));
}

}  // namespace

void swap_folders(const fs::path& hidden, const fs::path& target) {
  if (exchange_folders(hidden, target)) return;
  const ReplacementSign sign(target);
  swap_in_steps(hidden, target);
}

void remove_directory(const fs::path& folder) {
  const fs::path renamed = hidden_name(folder, kPartial);
  remove_all_quietly(renamed);
  if (::rename(folder.c_str(), renamed.c_str()) != 0)
    throw_file_error("io.rename", "cannot remove the folder", folder, errno);
  sync_directory(
      parent_folder(folder));  // or a power failure could leave a part of it under its name
  remove_all_quietly(renamed);
}

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)), file_(-1) {
  static std::atomic<unsigned> counter{0};
  temporary_ = parent_folder(path_) /
               str('.', path_.filename().string(), kTemporary, ++counter, '-', writer_tag());
  ::unlink(temporary_.c_str());
  file_ = open_file(temporary_, O_WRONLY | O_CREAT | O_EXCL, 0666);
  if (file_ < 0)
    throw_file_error("io.open", "cannot create a temporary file next to", path_, errno);
}

AtomicFile::~AtomicFile() {
  if (file_ >= 0) ::close(file_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* bytes, std::size_t size) {
  const char* from = static_cast<const char*>(bytes);
  const std::size_t all = size;
  while (size > 0) {
    // Linux writes at most 2 GiB a call; smaller pieces also keep the process responsive to
    // signals.
    const ssize_t done = ::write(file_, from, std::min<std::size_t>(size, 1 << 30));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) {  // A write of 0 bytes does not set errno.
      const int reason = done < 0 ? errno : ENOSPC;
      throw_file_error("io.write",
                       str("cannot write ", all, " bytes (", all - size, " were written) to"),
                       path_, reason);
    }
    from += done;
    size -= static_cast<std::size_t>(done);
  }
  start_writeback(file_, all);
}

void AtomicFile::commit() {
  const bool staged = is_staged_here(path_);
  if (staged) {
    // Starts writing to the disk without waiting. StagedDirectory::commit() waits, and reports
    // errors.
    static_cast<void>(::sync_file_range(file_, 0, 0, SYNC_FILE_RANGE_WRITE));
  } else if (::fsync(file_) != 0) {
    throw_file_error("io.sync", "cannot sync", path_, errno);
  }
  const int closed = ::close(std::exchange(file_, -1));
  if (closed != 0) throw_file_error("io.write", "cannot close", path_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    throw_file_error("io.rename", "cannot rename to", path_, errno);
  }
  temporary_.clear();
  if (!staged) sync_directory(parent_folder(path_));
}

void write_file_atomically(const fs::path& path, std::string_view bytes) {
  RecordedFile file(path);
  file.write(bytes);
  file.commit();
}

StagedDirectory::StagedDirectory(fs::path target) : target_(std::move(target)) {
  target_ = without_last_slash(target_);
  staged_ = hidden_name(target_, kPartial);
  if (!StagedPaths::add(staged_, this)) {
    throw IoError("io.staged", {.what = target_.string(),
                                .got = "a folder that this process is writing already",
                                .expected = "one writer at a time",
                                .hint = "wait until the other save has ended, or choose another "
                                        "folder"});
  }
  try {
    remove_all_quietly(staged_);
    make_directories(parent_folder(target_));
    if (::mkdir(staged_.c_str(), 0777) != 0) {
      throw_file_error("io.mkdir", "cannot create the folder", staged_, errno);
    }
  } catch (...) {
    StagedPaths::remove(staged_, this);
    throw;
  }
}

StagedDirectory::~StagedDirectory() {
  if (!committed_) remove_all_quietly(staged_);
  StagedPaths::remove(staged_, this);
}

void StagedDirectory::commit(OverwritePolicy policy) {
  if (committed_) return;
  sync_tree(staged_);
  std::error_code error;
  const bool exists = fs::exists(fs::symlink_status(target_, error));
  if (exists && policy == OverwritePolicy::refuse) {
    throw IoError("io.exists", {.what = target_.string() + " already exists",
                                .hint = "write to a new folder, or delete this one first"});
  }
  if (exists) {
    replace_directory(staged_, target_);
  } else if (::rename(staged_.c_str(), target_.c_str()) != 0) {
    throw_file_error("io.rename", "cannot rename to", target_, errno);
  }
  committed_ = true;
  sync_directory(parent_folder(target_));
  if (exists) remove_all_quietly(staged_);
  StagedPaths::remove(staged_, this);
}

void StagedDirectory::commit_and_keep(const fs::path& kept) {
  std::error_code error;
  if (committed_ || !fs::exists(fs::symlink_status(target_, error))) return commit();
  sync_tree(staged_);
  // The new folder gets the name `kept` first, so that one step swaps the names: at no time would
  // somebody who deletes unfinished folders find the old one among them.
  if (::rename(staged_.c_str(), kept.c_str()) != 0)
    throw_file_error("io.rename", "cannot rename to", kept, errno);
  try {
    swap_folders(kept, target_);
  } catch (...) {
    ::rename(kept.c_str(), staged_.c_str());
    throw;
  }
  committed_ = true;
  sync_directory(parent_folder(target_));
  StagedPaths::remove(staged_, this);
}

}  // namespace hasten
