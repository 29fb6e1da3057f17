#undef _FORTIFY_SOURCE  // it would define some of the functions below

#include "faults/watched_calls.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "faults/real_call.h"

namespace {

struct Watch {
  std::string folder;
  long fault_at = -1;
  Fault fault = Fault::kill;
  std::string report;
  std::atomic<long> calls{0};
  std::string host_name;  // of act_on_file_server(); otherwise empty
  bool is_taken_for_killed = false;
  std::atomic<long> moved_aside{0};
};
// Without constinit, it could be initialized after the constructor function of a preloaded library
// has filled it, and would then be empty.
constinit Watch watch;

bool is_watched(const char* path) {
  return !watch.folder.empty() && std::string_view(path).starts_with(watch.folder);
}

bool is_watched(int file) {
  if (watch.folder.empty()) return false;
  char name[4096];
  const ssize_t size =
      readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), name, sizeof name - 1);
  return size > 0 && (name[size] = '\0', is_watched(name));
}

// Counts the call. Returns true if this is the call to disturb, or a later call that needs space on
// a disk that stays full.
bool is_due(bool needs_space) {
  const long call = ++watch.calls;
  if (watch.fault_at <= 0 || call < watch.fault_at) return false;
  if (call == watch.fault_at && !watch.report.empty()) ::close(::creat(watch.report.c_str(), 0666));
  if (watch.fault == Fault::slow_disk) ::usleep(500);
  if (watch.fault == Fault::slow_disk || watch.fault == Fault::none) return false;
  return call == watch.fault_at || (watch.fault == Fault::stays_full && needs_space);
}

int error_of_fault() {
  if (watch.fault == Fault::io_error) return EIO;
  return watch.fault == Fault::read_only ? EROFS : ENOSPC;
}

// Counts the call. Returns true if it must fail, and sets errno in that case.
bool must_fail(bool needs_space) {
  if (!is_due(needs_space)) return false;
  if (watch.fault == Fault::kill) ::kill(::getpid(), SIGKILL);
  errno = error_of_fault();
  return true;
}

}  // namespace

// The libraries of the process call these functions instead of the system's.
#pragma GCC visibility push(default)
extern "C" {

ssize_t write(int file, const void* bytes, size_t size) {
  static const auto real = real_call<ssize_t (*)(int, const void*, size_t)>("write");
  static std::atomic<bool> next_fails{false};
  if (!is_watched(file)) return real(file, bytes, size);
  if (next_fails.exchange(false)) return errno = ENOSPC, -1;
  if (!is_due(true)) return real(file, bytes, size);
  if (watch.fault == Fault::kill || watch.fault == Fault::short_write) {
    const ssize_t written = real(file, bytes, size / 2);
    if (watch.fault == Fault::kill) ::kill(::getpid(), SIGKILL);
    next_fails = true;
    if (written > 0) return written;
  }
  return errno = error_of_fault(), -1;
}

// C++ streams write large blocks with this call. It writes the first half of the blocks before the
// process is killed.
ssize_t writev(int file, const iovec* blocks, int count) {
  static const auto real = real_call<ssize_t (*)(int, const iovec*, int)>("writev");
  if (!is_watched(file) || !is_due(true)) return real(file, blocks, count);
  if (watch.fault == Fault::kill) {
    if (count > 1) real(file, blocks, count / 2);
    ::kill(::getpid(), SIGKILL);
  }
  return errno = error_of_fault(), -1;
}

int fsync(int file) {
  static const auto real = real_call<int (*)(int)>("fsync");
  if (is_watched(file) && must_fail(false)) return -1;
  return real(file);
}

int fdatasync(int file) {
  static const auto real = real_call<int (*)(int)>("fdatasync");
  if (is_watched(file) && must_fail(false)) return -1;
  return real(file);
}

int ftruncate(int file, off_t size) noexcept {
  static const auto real = real_call<int (*)(int, off_t)>("ftruncate");
  if (is_watched(file) && must_fail(false)) return -1;
  return real(file, size);
}

int open(const char* path, int flags, ...) {
  static const auto real = real_call<int (*)(const char*, int, ...)>("open");
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if ((flags & O_CREAT) != 0 && is_watched(path) && must_fail(true)) return -1;
  return real(path, flags, mode);
}

// Programs that are compiled for large files, such as Python, open with this call.
int open64(const char* path, int flags, ...) {
  static const auto real = real_call<int (*)(const char*, int, ...)>("open64");
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if ((flags & O_CREAT) != 0 && is_watched(path) && must_fail(true)) return -1;
  return real(path, flags, mode);
}

int rename(const char* from, const char* to) noexcept {
  static const auto real = real_call<int (*)(const char*, const char*)>("rename");
  if (is_watched(to) && must_fail(false)) return -1;
  const int result = real(from, to);
  const bool is_aside =
      is_watched(to) && std::string_view(to).find(".replaced-") != std::string_view::npos;
  if (result == 0 && is_aside && watch.is_taken_for_killed && ++watch.moved_aside % 2 == 1)
    real(to, from);
  return result;
}

int renameat2(int at, const char* from, int to_at, const char* to, unsigned flags) noexcept {
  static const auto real =
      real_call<int (*)(int, const char*, int, const char*, unsigned)>("renameat2");
  if (is_watched(to) && must_fail(false)) return -1;
  if (flags != 0 && !watch.host_name.empty()) return errno = EINVAL, -1;
  return real(at, from, to_at, to, flags);
}

int gethostname(char* name, size_t size) noexcept {
  static const auto real = real_call<int (*)(char*, size_t)>("gethostname");
  if (watch.host_name.empty()) return real(name, size);
  if (size <= watch.host_name.size()) return errno = ENAMETOOLONG, -1;
  std::strcpy(name, watch.host_name.c_str());
  return 0;
}

int mkdir(const char* path, mode_t mode) noexcept {
  static const auto real = real_call<int (*)(const char*, mode_t)>("mkdir");
  if (is_watched(path) && must_fail(true)) return -1;
  return real(path, mode);
}

int unlink(const char* path) noexcept {
  static const auto real = real_call<int (*)(const char*)>("unlink");
  if (is_watched(path) && must_fail(false)) return -1;
  return real(path);
}

// The standard library deletes folders with this call, relative to an open folder.
int unlinkat(int at, const char* path, int flags) noexcept {
  static const auto real = real_call<int (*)(int, const char*, int)>("unlinkat");
  if ((at == AT_FDCWD ? is_watched(path) : is_watched(at)) && must_fail(false)) return -1;
  return real(at, path, flags);
}

int remove(const char* path) noexcept {
  static const auto real = real_call<int (*)(const char*)>("remove");
  if (is_watched(path) && must_fail(false)) return -1;
  return real(path);
}

}  // extern "C"
#pragma GCC visibility pop

void watch_calls(const std::string& folder, long fault_at, Fault fault, const std::string& report) {
  watch.calls = 0;
  watch.fault_at = fault_at;
  watch.fault = fault;
  watch.report = report;
  watch.folder = folder;
}

void act_on_file_server(const std::string& host_name, bool is_taken_for_killed) {
  watch.host_name = host_name;
  watch.is_taken_for_killed = is_taken_for_killed;
}

long watched_calls() { return watch.calls; }
