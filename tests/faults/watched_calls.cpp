#undef _FORTIFY_SOURCE  // it would define some of the functions below

#include "faults/watched_calls.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <string>
#include <string_view>

namespace {

struct Watch {
  std::string folder;
  long kill_at = -1;
  std::atomic<long> calls{0};
};
Watch watch;

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

// Counts the call. True if the process is to be killed in it.
bool is_due() { return ++watch.calls == watch.kill_at; }

void count_call() {
  if (is_due()) ::kill(::getpid(), SIGKILL);
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

ssize_t write(int file, const void* bytes, size_t size) {
  static const auto real = next<ssize_t (*)(int, const void*, size_t)>("write");
  if (is_watched(file) && is_due()) {
    real(file, bytes, size / 2);
    ::kill(::getpid(), SIGKILL);
  }
  return real(file, bytes, size);
}

int fsync(int file) {
  static const auto real = next<int (*)(int)>("fsync");
  if (is_watched(file)) count_call();
  return real(file);
}

int open(const char* path, int flags, ...) {
  static const auto real = next<int (*)(const char*, int, ...)>("open");
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if ((flags & O_CREAT) != 0 && is_watched(path)) count_call();
  return real(path, flags, mode);
}

int rename(const char* from, const char* to) noexcept {
  static const auto real = next<int (*)(const char*, const char*)>("rename");
  if (is_watched(to)) count_call();
  return real(from, to);
}

int renameat2(int at, const char* from, int to_at, const char* to, unsigned flags) noexcept {
  static const auto real = next<int (*)(int, const char*, int, const char*, unsigned)>("renameat2");
  if (is_watched(to)) count_call();
  return real(at, from, to_at, to, flags);
}

int mkdir(const char* path, mode_t mode) noexcept {
  static const auto real = next<int (*)(const char*, mode_t)>("mkdir");
  if (is_watched(path)) count_call();
  return real(path, mode);
}

int unlink(const char* path) noexcept {
  static const auto real = next<int (*)(const char*)>("unlink");
  if (is_watched(path)) count_call();
  return real(path);
}

// The standard library deletes folders with it, relative to an open one.
int unlinkat(int at, const char* path, int flags) noexcept {
  static const auto real = next<int (*)(int, const char*, int)>("unlinkat");
  if (at == AT_FDCWD ? is_watched(path) : is_watched(at)) count_call();
  return real(at, path, flags);
}

int remove(const char* path) noexcept {
  static const auto real = next<int (*)(const char*)>("remove");
  if (is_watched(path)) count_call();
  return real(path);
}

}  // extern "C"

void watch_calls(const std::string& folder, long kill_at) {
  watch.calls = 0;
  watch.kill_at = kill_at;
  watch.folder = folder;
}

long watched_calls() { return watch.calls; }
