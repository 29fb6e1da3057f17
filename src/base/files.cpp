#include "hasten/base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <vector>

#include "base/descriptor.h"
#include "base/environment_variable.h"
#include "base/file_calls.h"
#include "base/sync_tree.h"
#include "base/unfinished_files.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

// Some file systems, mostly network ones, cannot sync a folder and report EINVAL; that is not an
// error.
void sync_path(const fs::path& path, int flags) {
  const Descriptor file(open_file(path, flags));
  if (file.get() < 0) throw_file_error("io.open", "cannot open", path, errno);
  if (::fsync(file.get()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    throw_file_error("io.sync", "cannot sync", path, errno);
  }
}

// Writes all bytes and returns 0, or the errno of the call that fails. A call that writes only some
// of them does not set errno, but the next one does.
int error_of_writing(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : ENOSPC;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

// Creates the folder and the missing ones above it, and syncs the folders that have a new entry.
void create_synced_directories(const fs::path& path, std::error_code& error) {
  std::vector<fs::path> missing;
  std::error_code unknown;
  for (fs::path each = path; !each.empty() && !fs::exists(each, unknown);
       each = each.parent_path()) {
    missing.push_back(each);
    if (each == each.parent_path()) break;
  }
  fs::create_directories(path, error);
  for (auto it = missing.rbegin(); !error && it != missing.rend(); ++it) {
    // A folder that this user may write to but not read cannot be synced.
    const Descriptor folder(open_file(parent_folder(*it), O_RDONLY | O_DIRECTORY));
    if (folder.get() < 0 && errno == EACCES) continue;
    sync_directory(parent_folder(*it));
  }
}

}  // namespace

std::string read_file(const fs::path& path) {
  const Descriptor file(open_file(path, O_RDONLY));
  if (file.get() < 0) throw_file_error("io.open", "cannot open", path, errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw_file_error("io.read", "cannot read", path, errno);
  // The size is only a first guess: files under /proc report 0, and a file may grow.
  std::string bytes(status.st_size > 0 ? static_cast<std::size_t>(status.st_size) + 1 : 4096, '\0');
  std::size_t filled = 0;
  for (;;) {
    if (filled == bytes.size()) bytes.resize(bytes.size() * 2);
    const ssize_t got = ::read(file.get(), bytes.data() + filled, bytes.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_file_error("io.read", "cannot read", path, errno);
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  bytes.resize(filled);
  return bytes;
}

void read_blocks(const fs::path& path, const std::function<void(std::string_view)>& use) {
  const Descriptor file(open_file(path, O_RDONLY));
  if (file.get() < 0) throw_file_error("io.open", "cannot open", path, errno);
  std::string block(1 << 20, '\0');
  for (;;) {
    const ssize_t got = ::read(file.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_file_error("io.read", "cannot read", path, errno);
    if (got == 0) return;
    use(std::string_view(block.data(), static_cast<std::size_t>(got)));
  }
}

void sync_directory(const fs::path& folder) { sync_path(folder, O_RDONLY | O_DIRECTORY); }

void sync_tree(const fs::path& root) {
  std::error_code error;
  std::vector<fs::path> folders = {root};
  for (auto it = fs::recursive_directory_iterator(root, error); !error && it != fs::end(it);
       it.increment(error)) {
    // A file system that does not say what an entry is has to be asked, and this may fail.
    const fs::file_status entry = it->symlink_status(error);
    if (error) throw_file_error("io.read", "cannot look up", it->path(), error.value());
    if (fs::is_directory(entry)) folders.push_back(it->path());
    if (fs::is_regular_file(entry)) sync_path(it->path(), O_RDONLY);
  }
  if (error) throw_file_error("io.read", "cannot list the folder", root, error.value());
  for (auto it = folders.rbegin(); it != folders.rend(); ++it) sync_directory(*it);
}

void move_files(const fs::path& from, const fs::path& to, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (::rename((from / name).c_str(), (to / name).c_str()) != 0)
      throw_file_error("io.rename", "cannot rename to", to / name, errno);
  }
  sync_directory(to);
}

void make_directories(const fs::path& path) {
  std::error_code error;
  create_synced_directories(path, error);
  if (error) throw_file_error("io.mkdir", "cannot create the folder", path, error.value());
}

void check_writable_directory(const fs::path& path) {
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_directory(path, error)) {
    throw IoError("io.not-a-directory", {.what = path.string() + " is not a folder",
                                         .hint = "pass the path of a folder, or move the file"});
  }
  if (fs::is_symlink(path, error) && !fs::exists(path, error)) {
    throw IoError("io.not-a-directory",
                  {.what = path.string() + " is a symbolic link to nothing",
                   .got = "the target " + fs::read_symlink(path, error).string(),
                   .expected = "a folder",
                   .hint = "create the target, or remove the link"});
  }
  create_synced_directories(path, error);
  if (error) throw_file_error("io.not-writable", "cannot create the folder", path, error.value());
  // It is not enough to check permissions: the file system may be read-only, and root may write
  // without them. A full file system still creates empty files, so the probe has content.
  const fs::path probe = path / str(".hasten", kTemporary, "0-", writer_tag());
  const Descriptor file(open_file(probe, O_WRONLY | O_CREAT, 0600));
  if (file.get() < 0) throw_file_error("io.not-writable", "cannot create files in", path, errno);
  const int reason = error_of_writing(file.get(), std::string(4096, '\0'));
  ::unlink(probe.c_str());
  if (reason != 0) throw_file_error("io.not-writable", "cannot write files in", path, reason);
}

void check_free_space(const fs::path& path, std::uintmax_t bytes, const std::string& purpose) {
  std::error_code error;
  const fs::space_info space = fs::space(path, error);
  const bool known = !error && space.capacity > 0;  // Some network file systems do not report it.
  if (!known || space.available >= bytes) return;
  throw IoError("io.no-space",
                {.what = "free space on the disk of " + path.string(),
                 .got = human_bytes(static_cast<std::int64_t>(space.available)),
                 .expected = str("at least ", human_bytes(static_cast<std::int64_t>(bytes)),
                                 " for ", purpose),
                 .hint = hint_for_file_error(ENOSPC)});
}

fs::path temporary_folder() {
  const std::string named = environment_variable("TMPDIR");
  const fs::path folder = named.empty() ? "/tmp" : named;
  std::error_code error;
  if (fs::is_directory(folder, error)) return folder;
  throw IoError(
      "io.mkdir",
      {.what = named.empty() ? "the folder for temporary files, because TMPDIR is unset" : "TMPDIR",
       .got = str(folder.string(), ": ", error ? error.message() : std::string("not a folder")),
       .expected = "a folder for temporary files",
       .hint = "set TMPDIR to a folder that exists"});
}

TemporaryDirectory::TemporaryDirectory(std::string_view prefix) {
  std::string pattern = (temporary_folder() / str(prefix, "-XXXXXX")).string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    throw_file_error("io.mkdir", "cannot create a folder like", pattern, errno);
  }
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() { remove_all_quietly(path_); }

}  // namespace hasten
