#include "hasten/base/files.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

// strerror is not safe between threads; the category's message is.
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
      return "check the path; a folder on the way may be missing";
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

// Some file systems (of networks, mostly) cannot sync a folder and say EINVAL: there is nothing
// more to do then.
void sync_path(const fs::path& path, int flags) {
  const Descriptor file(open_retrying(path, flags));
  if (file.get() < 0) fail("io.open", "cannot open", path, errno);
  if (::fsync(file.get()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    fail("io.sync", "cannot sync", path, errno);
  }
}

void sync_directory(const fs::path& path) { sync_path(path, O_RDONLY | O_DIRECTORY); }

void remove_all_quietly(const fs::path& path) noexcept {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

// Every file first, then the folders from the deepest up, so that a folder's entries are on disk
// before its name is.
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

// Swaps the two folders in one step; afterwards `staged` names the old one. Where the file system
// cannot swap, the old folder moves aside first: a crash between the two renames leaves it there
// under a partial name, whole.
void replace_directory(const fs::path& staged, const fs::path& target) {
  if (::renameat2(AT_FDCWD, staged.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) {
    fail("io.rename", "cannot replace", target, errno);
  }
  const fs::path aside = staged.string() + "0";
  remove_all_quietly(aside);
  if (::rename(target.c_str(), aside.c_str()) != 0) {
    fail("io.rename", "cannot move aside", target, errno);
  }
  if (::rename(staged.c_str(), target.c_str()) != 0) {
    const int error = errno;
    ::rename(aside.c_str(), target.c_str());
    fail("io.rename", "cannot replace", target, error);
  }
  ::rename(aside.c_str(), staged.c_str());
}

bool all_digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

}  // namespace

std::string read_file(const fs::path& path) {
  const Descriptor file(open_retrying(path, O_RDONLY));
  if (file.get() < 0) fail("io.open", "cannot open", path, errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail("io.read", "cannot read", path, errno);
  // The size is only a first guess: files under /proc say 0, and a file may grow meanwhile.
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

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)), file_(-1) {
  static std::atomic<unsigned> counter{0};
  temporary_ =
      folder_of(path_) / str('.', path_.filename().string(), ".tmp-", ::getpid(), '-', ++counter);
  ::unlink(temporary_.c_str());  // of an earlier process with our number
  file_ = open_retrying(temporary_, O_WRONLY | O_CREAT | O_EXCL, 0666);
  if (file_ < 0) fail("io.open", "cannot make a file beside", path_, errno);
}

AtomicFile::~AtomicFile() {
  if (file_ >= 0) ::close(file_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* bytes, std::size_t size) {
  const char* from = static_cast<const char*>(bytes);
  while (size > 0) {
    // Linux writes at most 2 GiB a call; a smaller piece also keeps a signal's answer prompt.
    const ssize_t done = ::write(file_, from, std::min<std::size_t>(size, 1 << 30));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail("io.write", "cannot write", path_, errno);
    from += done;
    size -= static_cast<std::size_t>(done);
  }
}

void AtomicFile::commit() {
  if (::fsync(file_) != 0) fail("io.sync", "cannot sync", path_, errno);
  const int closed = ::close(std::exchange(file_, -1));
  if (closed != 0) fail("io.write", "cannot close", path_, errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    fail("io.rename", "cannot rename to", path_, errno);
  }
  temporary_.clear();
  sync_directory(folder_of(path_));
}

void write_file_atomically(const fs::path& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

StagedDirectory::StagedDirectory(fs::path target) : target_(std::move(target)) {
  if (!target_.has_filename()) target_ = target_.parent_path();  // a path that ends in a slash
  staged_ = folder_of(target_) / str('.', target_.filename().string(), ".partial-", ::getpid());
  remove_all_quietly(staged_);
  make_directories(folder_of(target_));
  if (::mkdir(staged_.c_str(), 0777) != 0) {
    fail("io.mkdir", "cannot make the folder", staged_, errno);
  }
}

StagedDirectory::~StagedDirectory() {
  if (!committed_) remove_all_quietly(staged_);
}

void StagedDirectory::commit(Existing existing) {
  if (committed_) return;
  sync_tree(staged_);
  std::error_code error;
  const bool there = fs::exists(fs::symlink_status(target_, error));
  if (there && existing == Existing::refuse) {
    throw IoError("io.exists", {.what = target_.string() + " exists already",
                                .hint = "write to a new folder, or delete this one first"});
  }
  if (there) {
    replace_directory(staged_, target_);
  } else if (::rename(staged_.c_str(), target_.c_str()) != 0) {
    fail("io.rename", "cannot rename to", target_, errno);
  }
  committed_ = true;
  sync_directory(folder_of(target_));
  if (there) remove_all_quietly(staged_);
}

bool is_partial(const fs::path& path) {
  const std::string name = path.filename().string();
  if (name.empty() || name[0] != '.') return false;
  if (const auto at = name.rfind(".partial-"); at != std::string::npos) {
    return all_digits(name.substr(at + 9));
  }
  const auto at = name.rfind(".tmp-");
  if (at == std::string::npos) return false;
  const std::vector<std::string> numbers = split(name.substr(at + 5), '-');
  return numbers.size() == 2 && all_digits(numbers[0]) && all_digits(numbers[1]);
}

void make_directories(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) fail("io.mkdir", "cannot make the folder", path, error.value());
}

void check_writable_directory(const fs::path& path) {
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_directory(path, error)) {
    throw IoError("io.not-a-directory", {.what = path.string() + " is not a folder",
                                         .hint = "name a folder, or move the file away"});
  }
  fs::create_directories(path, error);
  if (error) fail("io.not-writable", "cannot make the folder", path, error.value());
  // Permissions alone do not tell: the file system may be read-only or full, and root may do what
  // others may not.
  const fs::path probe = path / str(".hasten.tmp-", ::getpid(), "-0");
  const Descriptor file(open_retrying(probe, O_WRONLY | O_CREAT, 0600));
  if (file.get() < 0) fail("io.not-writable", "cannot make files in", path, errno);
  ::unlink(probe.c_str());
}

TemporaryDirectory::TemporaryDirectory(std::string_view prefix) {
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  if (error) fail("io.mkdir", "no folder for temporary files:", parent, error.value());
  std::string pattern = (parent / str(prefix, "-XXXXXX")).string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    fail("io.mkdir", "cannot make a folder like", pattern, errno);
  }
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() { remove_all_quietly(path_); }

}  // namespace hasten
