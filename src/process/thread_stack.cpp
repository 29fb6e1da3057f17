#include "process/thread_stack.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>

#include "hasten/base/text.h"
#include "process/symbol_table.h"

namespace hasten {
namespace {

constexpr int kFrames = 64;
constexpr int kHold = -1;                  // in place of a request's number
constexpr std::size_t kLongestName = 160;  // templates have no end

// A handler has no argument of ours but a number: what it writes to must be found without one.
struct Capture {
  std::atomic<int> wanted = 0;  // the number of the request that may be answered
  void* frames[kFrames];
  int count = 0;
  std::atomic<int> answered = 0;
};
Capture& the_capture() {
  static Capture capture;
  return capture;
}

void note_frames(int, siginfo_t* info, void*) {
  Capture& capture = the_capture();
  int request = info->si_value.sival_int;
  while (request == kHold) pause();
  // The request is taken, so that one that comes too late writes nowhere.
  if (request == 0 || !capture.wanted.compare_exchange_strong(request, 0)) return;
  const int error = errno;
  capture.count = backtrace(capture.frames, kFrames);
  errno = error;
  capture.answered.store(info->si_value.sival_int);
}

// A real-time signal without a handler, from the last on; 0: none is left.
int installed_signal() {
  static const int number = [] {
    for (int each = SIGRTMAX; each >= SIGRTMIN; --each) {
      struct sigaction now {};
      if (sigaction(each, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) continue;
      struct sigaction ours {};
      ours.sa_sigaction = note_frames;
      ours.sa_flags = SA_SIGINFO | SA_RESTART;
      sigfillset(&ours.sa_mask);
      if (sigaction(each, &ours, nullptr) == 0) return each;
    }
    return 0;
  }();
  return number;
}

bool interrupt(pid_t thread, int signal, int request) {
  siginfo_t info{};
  info.si_signo = signal;
  info.si_code = SI_QUEUE;
  info.si_pid = getpid();
  info.si_uid = getuid();
  info.si_value.sival_int = request;
  return syscall(SYS_rt_tgsigqueueinfo, getpid(), thread, signal, &info) == 0;
}

std::string readable(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> demangled(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  std::string text = demangled ? demangled.get() : name;
  if (text.size() > kLongestName) text = text.substr(0, kLongestName) + "...";
  return text;
}

std::string line_of(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "unknown code";
  const auto offset = static_cast<std::uint64_t>(static_cast<const char*>(address) -
                                                 static_cast<const char*>(info.dli_fbase));
  // The program itself is known by the word that started it, which need not be a path.
  const char* const file = *info.dli_fname == '/' ? info.dli_fname : "/proc/self/exe";
  const std::string name = info.dli_sname != nullptr ? info.dli_sname : name_in(file, offset);
  char hexadecimal[32];
  std::snprintf(hexadecimal, sizeof hexadecimal, "+0x%llx",
                static_cast<unsigned long long>(offset));
  const std::string module = std::filesystem::path(info.dli_fname).filename().string();
  return str(name.empty() ? "?" : readable(name.c_str()), " in ", module, hexadecimal);
}

}  // namespace

std::vector<std::string> stack_of(pid_t thread, std::chrono::milliseconds longest) {
  static std::mutex turn;
  static int requests = 0;
  const std::lock_guard lock(turn);
  const int signal = installed_signal();
  if (signal == 0 || thread <= 0) return {};
  Capture& capture = the_capture();
  const int request = ++requests;
  capture.wanted.store(request);
  if (!interrupt(thread, signal, request)) return {};
  const auto deadline = std::chrono::steady_clock::now() + longest;
  while (capture.answered.load() != request) {
    if (std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    int expected = request;
    if (capture.wanted.compare_exchange_strong(expected, 0)) return {};
    // It has begun to answer, and gets as long again.
    const auto last = deadline + longest;
    while (capture.answered.load() != request && std::chrono::steady_clock::now() < last)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (capture.answered.load() != request) return {};
  }
  std::vector<std::string> lines;
  // The first two are the handler and the kernel's way into it. What follows the third are return
  // addresses: the call is before them.
  for (int i = 2; i < capture.count; ++i) {
    const char* const address = static_cast<const char*>(capture.frames[i]) - (i > 2 ? 1 : 0);
    lines.push_back(line_of(address));
    if (starts_with(lines.back(), "main in ")) break;  // what starts a program says nothing
  }
  return lines;
}

void hold(pid_t thread) {
  const int signal = installed_signal();
  if (signal != 0 && thread > 0) interrupt(thread, signal, kHold);
}

void prepare_stacks() {
  void* frames[2];
  backtrace(frames, 2);
}

}  // namespace hasten
