#include "hasten/base/files.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "base/process_state.h"
#include "base/sync_tree.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

// strerror is not thread-safe; the category's message is.
std::string error_text(int error) { return std::generic_category().message(error); }

std::string hint_for(int error) {
  switch (error) {
    case ENOSPC:
      return "the disk is full: free some space, or write elsewhere";
    case EDQUOT:
      return "the disk quota is used up";
    case EROFS:
      return "the file system is mounted read-only";
    case EACCES:
    case EPERM:
      return "check the owner and the permissions of the path and of the folders above it";
    case ENOENT:
      return "check the path; a folder above it may be missing";
    case EMFILE:
    case ENFILE:
      return "too many open files: raise the limit with ulimit -n";
    default:
      return "";
  }
}

[[noreturn]] void fail(const char* code, const std::string& what, const fs::path& path, int error) {
  throw IoError(
      code,
      {.what = what + " " + path.string(), .got = error_text(error), .hint = hint_for(error)});
}

int open_retrying(const fs::path& path, int flags, mode_t mode = 0) {
  int file;
  do {
    file = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (file < 0 && errno == EINTR);
  return file;
}

fs::path folder_of(const fs::path& path) {
  const fs::path parent = path.parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

// Some file systems, mostly network ones, cannot sync a folder and report EINVAL; that is not an
// error.
void sync_path(const fs::path& path, int flags) {
  const Descriptor file(open_retrying(path, flags));
  if (file.get() < 0) fail("io.open", "cannot open", path, errno);
  if (::fsync(file.get()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    fail("io.sync", "cannot sync", path, errno);
  }
}

void remove_all_quietly(const fs::path& path) noexcept {
  std::error_code ignored;
  fs::remove_all(path, ignored);
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
    // A folder in which one may create others but not list them cannot be synced.
    const Descriptor folder(open_retrying(folder_of(*it), O_RDONLY | O_DIRECTORY));
    if (folder.get() < 0 && errno == EACCES) continue;
    sync_directory(folder_of(*it));
  }
}

bool all_digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

// The process that writes an unfinished file or folder, as encoded in the name.
struct Writer {
  std::string pid, start, host;  // Names of an earlier version have only a PID.
};

std::string text_of(const char* path) {
  try {
    return std::string(trim(read_file(path)));
  } catch (const IoError&) {
    return "";
  }
}

std::string link_of(const char* path) {
  std::error_code error;
  return fs::read_symlink(path, error).string();
}

// Identifies where a PID means one process: the boot of the machine and the PID namespace (a
// container has its own). Empty if it cannot be determined.
std::string pid_scope() {
  const std::string boot = text_of("/proc/sys/kernel/random/boot_id"),
                    numbers = link_of("/proc/self/ns/pid");
  const bool known = !boot.empty() && !numbers.empty() && link_of("/proc/self") == str(::getpid());
  return known ? boot + numbers : "";
}

// Returns the host name, for people, and a digest of the machine and the PID namespace.
std::string host_tag() {
  const std::string name = host_name();
  std::string host = name.substr(0, 24);
  for (char& c : host) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  const std::string scope = pid_scope();
  if (scope.empty()) return host + ".unknown";
  return host + '.' + short_digest(scope + name).substr(0, 8);
}

// Returns when a process of this host was started, in the kernel's clock ticks; empty if there is
// none or it is a zombie.
std::string start_of(const std::string& pid) {
  const auto status = process_status(pid);
  return status && !has_ended(status->state) ? str(status->started) : "";
}

// Returns PID-START-HOST of this process, read on each call, because a fork is another process.
std::string tag_of_this_process() {
  const std::string pid = str(::getpid()), start = start_of(pid);
  return str(pid, '-', start.empty() ? "0" : start, '-', host_tag());
}

std::optional<Writer> writer_of_tag(const std::string& tag) {
  if (all_digits(tag)) return Writer{.pid = tag, .start = "", .host = ""};
  const std::size_t first = tag.find('-');
  const std::size_t second = first == std::string::npos ? first : tag.find('-', first + 1);
  if (second == std::string::npos) return std::nullopt;
  Writer writer{.pid = tag.substr(0, first),
                .start = tag.substr(first + 1, second - first - 1),
                .host = tag.substr(second + 1)};
  if (!all_digits(writer.pid) || !all_digits(writer.start)) return std::nullopt;
  return writer;
}

// An unfinished file or folder: its final name and its writer.
struct Partial {
  std::string target;
  Writer writer;
  bool replaced = false;  // True for the old folder, which a new one replaces.
};

constexpr const char* kPartial = ".partial-";    // Folders.
constexpr const char* kReplaced = ".replaced-";  // Folders.
constexpr const char* kTemporary = ".tmp-";      // Files; a number precedes the tag.

std::optional<Partial> partial_of(const fs::path& path) {
  const std::string name = path.filename().string();
  if (name.empty() || name[0] != '.') return std::nullopt;
  for (const char* kind : {kPartial, kReplaced, kTemporary}) {
    const std::size_t at = name.rfind(kind);
    if (at == std::string::npos) continue;
    std::string tag = name.substr(at + std::string_view(kind).size());
    if (kind == kTemporary) {
      const std::size_t dash = tag.find('-');
      if (dash == std::string::npos || !all_digits(tag.substr(0, dash))) return std::nullopt;
      tag = tag.substr(dash + 1);
    }
    const auto writer = writer_of_tag(tag);
    if (!writer) return std::nullopt;
    return Partial{
        .target = name.substr(1, at - 1), .writer = *writer, .replaced = kind == kReplaced};
  }
  return std::nullopt;
}

// The folders that StagedDirectory objects of this process write. Two of them for one target would
// have the same name, and the second would delete the files of the first.
class StagedPaths {
 public:
  // Returns false if the path has another writer.
  static bool add(const fs::path& path, const StagedDirectory* writer) {
    const std::lock_guard lock(own().mutex_);
    return own().writers_.emplace(key_of(path), writer).second;
  }
  // Does nothing if the path has another writer.
  static void remove(const fs::path& path, const StagedDirectory* writer) {
    const std::lock_guard lock(own().mutex_);
    const auto found = own().writers_.find(key_of(path));
    if (found != own().writers_.end() && found->second == writer) own().writers_.erase(found);
  }

 private:
  // It is never destroyed, because a save in the background may end while the process does.
  static StagedPaths& own() {
    static auto* const all = new StagedPaths;
    return *all;
  }
  static std::string key_of(const fs::path& path) {
    return fs::absolute(path).lexically_normal().string();
  }

  std::mutex mutex_;
  std::map<std::string, const StagedDirectory*> writers_;
};

// True if the file is below a folder that this process stages: StagedDirectory::commit() syncs it,
// so that it is synced once.
bool is_staged_here(const fs::path& path) {
  const fs::path folder = folder_of(path);
  if (folder.native().find(kPartial) == std::string::npos) return false;
  const std::string ending = kPartial + tag_of_this_process();
  return std::any_of(folder.begin(), folder.end(), [&](const fs::path& part) {
    return part.native().starts_with('.') && ends_with(part.native(), ending);
  });
}

// Swaps the two folders in one step; `staged` then names the old one. If the file system cannot
// swap, the old folder is moved aside first: a crash between the two renames leaves it there,
// complete, and remove_abandoned restores it.
void replace_directory(const fs::path& staged, const fs::path& target) {
  if (::renameat2(AT_FDCWD, staged.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) {
    fail("io.rename", "cannot replace", target, errno);
  }
  const fs::path set_aside =
      folder_of(target) / str('.', target.filename().string(), kReplaced, tag_of_this_process());
  remove_all_quietly(set_aside);
  if (::rename(target.c_str(), set_aside.c_str()) != 0) {
    fail("io.rename", "cannot move aside", target, errno);
  }
  if (::rename(staged.c_str(), target.c_str()) != 0) {
    const int error = errno;
    ::rename(set_aside.c_str(), target.c_str());
    fail("io.rename", "cannot replace", target, error);
  }
  ::rename(set_aside.c_str(), staged.c_str());
}

// Returns the last change of a file, or of a folder and everything in it.
fs::file_time_type last_change(const fs::path& path) {
  std::error_code error;
  fs::file_time_type latest = fs::last_write_time(path, error);
  if (error) return fs::file_time_type::clock::now();
  for (auto it = fs::recursive_directory_iterator(path, error); !error && it != fs::end(it);
       it.increment(error)) {
    std::error_code gone;
    const auto time = fs::last_write_time(it->path(), gone);
    if (!gone) latest = std::max(latest, time);
  }
  return latest;
}

bool is_abandoned(const Partial& partial, const fs::path& path) {
  const Writer& writer = partial.writer;
  const std::string host = host_tag();
  if (writer.host == host && !ends_with(host, ".unknown"))
    return start_of(writer.pid) != writer.start;
  return fs::file_time_type::clock::now() - last_change(path) > std::chrono::hours(1);
}

// Makes the disk begin to write after `size` further bytes were written, each time that another piece
// of the file is complete, so that the sync at the end has little left to wait for. An error is
// reported by that sync.
void start_disk(int file, std::size_t size) {
  constexpr off_t kPiece = 32 << 20;
  const off_t position = ::lseek(file, 0, SEEK_CUR);
  const off_t begin = (position - static_cast<off_t>(size)) / kPiece * kPiece;
  const off_t end = position / kPiece * kPiece;
  if (position >= 0 && end > begin)
    static_cast<void>(::sync_file_range(file, begin, end - begin, SYNC_FILE_RANGE_WRITE));
}

}  // namespace

std::string read_file(const fs::path& path) {
  const Descriptor file(open_retrying(path, O_RDONLY));
  if (file.get() < 0) fail("io.open", "cannot open", path, errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail("io.read", "cannot read", path, errno);
  // The size is only a first guess: files under /proc report 0, and a file may grow.
  std::string bytes(status.st_size > 0 ? static_cast<std::size_t>(status.st_size) + 1 : 4096, '\0');
  std::size_t filled = 0;
  for (;;) {
    if (filled == bytes.size()) bytes.resize(bytes.size() * 2);
    const ssize_t got = ::read(file.get(), bytes.data() + filled, bytes.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("io.read", "cannot read", path, errno);
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  bytes.resize(filled);
  return bytes;
}

void read_blocks(const fs::path& path, const std::function<void(std::string_view)>& use) {
  const Descriptor file(open_retrying(path, O_RDONLY));
  if (file.get() < 0) fail("io.open", "cannot open", path, errno);
  std::string block(1 << 20, '\0');
  for (;;) {
    const ssize_t got = ::read(file.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("io.read", "cannot read", path, errno);
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
    if (it->is_symlink()) continue;
    if (it->is_directory()) folders.push_back(it->path());
    if (it->is_regular_file()) sync_path(it->path(), O_RDONLY);
  }
  if (error) fail("io.read", "cannot list the folder", root, error.value());
  for (auto it = folders.rbegin(); it != folders.rend(); ++it) sync_directory(*it);
}

void remove_directory(const fs::path& folder) {
  const fs::path doomed =
      folder_of(folder) / str('.', folder.filename().string(), kPartial, tag_of_this_process());
  remove_all_quietly(doomed);
  if (::rename(folder.c_str(), doomed.c_str()) != 0)
    fail("io.rename", "cannot remove the folder", folder, errno);
  sync_directory(folder_of(folder));  // or a power failure could leave a part of it under its name
  remove_all_quietly(doomed);
}

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)), file_(-1) {
  static std::atomic<unsigned> counter{0};
  temporary_ = folder_of(path_) / str('.', path_.filename().string(), kTemporary, ++counter, '-',
                                      tag_of_this_process());
  ::unlink(temporary_.c_str());
  file_ = open_retrying(temporary_, O_WRONLY | O_CREAT | O_EXCL, 0666);
  if (file_ < 0) fail("io.open", "cannot create a temporary file next to", path_, errno);
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
    if (done <= 0) {  // Writing nothing sets no errno.
      const int reason = done < 0 ? errno : ENOSPC;
      fail("io.write", str("cannot write ", all, " bytes (", all - size, " were written) to"),
           path_, reason);
    }
    from += done;
    size -= static_cast<std::size_t>(done);
  }
  start_disk(file_, all);
}

void AtomicFile::commit() {
  const bool staged = is_staged_here(path_);
  if (staged) {
    // The disk starts to write now, while the caller goes on; only commit() waits for it. An error is
    // reported there again.
    static_cast<void>(::sync_file_range(file_, 0, 0, SYNC_FILE_RANGE_WRITE));
  } else if (::fsync(file_) != 0) {
    fail("io.sync", "cannot sync", path_, errno);
  }
  const int closed = ::close(std::exchange(file_, -1));
  if (closed != 0) fail("io.write", "cannot close", path_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    fail("io.rename", "cannot rename to", path_, errno);
  }
  temporary_.clear();
  if (!staged) sync_directory(folder_of(path_));
}

void write_file_atomically(const fs::path& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

StagedDirectory::StagedDirectory(fs::path target) : target_(std::move(target)) {
  if (!target_.has_filename()) target_ = target_.parent_path();  // The path ends in a slash.
  staged_ =
      folder_of(target_) / str('.', target_.filename().string(), kPartial, tag_of_this_process());
  if (!StagedPaths::add(staged_, this)) {
    throw IoError("io.staged", {.what = target_.string(),
                                .got = "a folder that this process is writing already",
                                .expected = "one writer at a time",
                                .hint = "wait until the other save has ended, or choose another "
                                        "folder"});
  }
  try {
    remove_all_quietly(staged_);
    make_directories(folder_of(target_));
    if (::mkdir(staged_.c_str(), 0777) != 0) {
      fail("io.mkdir", "cannot create the folder", staged_, errno);
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

void StagedDirectory::commit(Existing existing) {
  if (committed_) return;
  sync_tree(staged_);
  std::error_code error;
  const bool exists = fs::exists(fs::symlink_status(target_, error));
  if (exists && existing == Existing::refuse) {
    throw IoError("io.exists", {.what = target_.string() + " already exists",
                                .hint = "write to a new folder, or delete this one first"});
  }
  if (exists) {
    replace_directory(staged_, target_);
  } else if (::rename(staged_.c_str(), target_.c_str()) != 0) {
    fail("io.rename", "cannot rename to", target_, errno);
  }
  committed_ = true;
  sync_directory(folder_of(target_));
  if (exists) remove_all_quietly(staged_);
  StagedPaths::remove(staged_, this);
}

bool is_partial(const fs::path& path) { return partial_of(path).has_value(); }

bool is_abandoned(const fs::path& path) {
  const auto partial = partial_of(path);
  return partial && is_abandoned(*partial, path);
}

void remove_abandoned(const fs::path& folder,
                      const std::function<bool(const std::string& target)>& is_target) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::end(it);
       it.increment(error))
    entries.push_back(it->path());
  for (const fs::path& path : entries) {
    const auto partial = partial_of(path);
    if (!partial || !is_target(partial->target) || !is_abandoned(*partial, path)) continue;
    const fs::path target = folder / partial->target;
    if (partial->replaced && !fs::exists(target, error)) {
      fs::rename(path, target, error);
    } else {
      remove_all_quietly(path);
    }
  }
}

void move_files(const fs::path& from, const fs::path& to, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (::rename((from / name).c_str(), (to / name).c_str()) != 0)
      fail("io.rename", "cannot rename to", to / name, errno);
  }
  sync_directory(to);
}

void make_directories(const fs::path& path) {
  std::error_code error;
  create_synced_directories(path, error);
  if (error) fail("io.mkdir", "cannot create the folder", path, error.value());
}

void check_writable_directory(const fs::path& path) {
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_directory(path, error)) {
    throw IoError("io.not-a-directory", {.what = path.string() + " is not a folder",
                                         .hint = "pass the path of a folder, or move the file"});
  }
  create_synced_directories(path, error);
  if (error) fail("io.not-writable", "cannot create the folder", path, error.value());
  // Permissions are not enough: the file system may be read-only, and root may do what others may
  // not. A full file system still creates empty files, so the probe has content.
  const fs::path probe = path / str(".hasten", kTemporary, "0-", tag_of_this_process());
  const Descriptor file(open_retrying(probe, O_WRONLY | O_CREAT, 0600));
  if (file.get() < 0) fail("io.not-writable", "cannot create files in", path, errno);
  const std::string block(4096, '\0');
  const ssize_t written = ::write(file.get(), block.data(), block.size());
  const int reason = written < 0 ? errno : ENOSPC;  // a write that is cut short sets no errno
  ::unlink(probe.c_str());
  if (written != static_cast<ssize_t>(block.size()))
    fail("io.not-writable", "cannot write files in", path, reason);
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
                 .hint = hint_for(ENOSPC)});
}

TemporaryDirectory::TemporaryDirectory(std::string_view prefix) {
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  if (error) fail("io.mkdir", "no folder for temporary files:", parent, error.value());
  std::string pattern = (parent / str(prefix, "-XXXXXX")).string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    fail("io.mkdir", "cannot create a folder like", pattern, errno);
  }
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() { remove_all_quietly(path_); }

}  // namespace hasten
