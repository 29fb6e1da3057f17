#include "process/watch/thread_stack.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "hasten/base/text.h"
#include "process/watch/bounded_call.h"
#include "process/watch/symbol_table.h"

namespace hasten {
namespace {

constexpr int kFrames = 64;
constexpr int kParkRequest = -1;             // sent instead of a request's number by park_thread()
constexpr std::size_t kMaxNameLength = 160;  // names of templates can be of any length

// The memory that the signal handler writes to. It is global because the handler is only passed a
// number.
struct Capture {
  std::atomic<int> wanted = 0;  // the number of the request that may be answered, or 0
  void* frames[kFrames];
  int count = 0;
  std::atomic<int> answered = 0;
};
Capture& global_capture() {
  static Capture capture;
  return capture;
}

void record_frames(int, siginfo_t* info, void*) {
  Capture& capture = global_capture();
  int request = info->si_value.sival_int;
  while (request == kParkRequest) pause();
  // The handler claims the request, so that a signal that comes too late writes nothing.
  if (request == 0 || !capture.wanted.compare_exchange_strong(request, 0)) return;
  const int error = errno;
  capture.count = backtrace(capture.frames, kFrames);
  errno = error;
  capture.answered.store(info->si_value.sival_int);
}

// Returns a real-time signal for which the handler is installed: the last one that had no handler.
// Returns 0 if there is no such signal.
int installed_signal() {
  static const int number = [] {
    for (int each = SIGRTMAX; each >= SIGRTMIN; --each) {
      struct sigaction now {};
      if (sigaction(each, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) continue;
      struct sigaction ours {};
      ours.sa_sigaction = record_frames;
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

std::string demangle_symbol(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> demangled(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  std::string text = demangled ? demangled.get() : name;
  if (text.size() > kMaxNameLength) text = text.substr(0, kMaxNameLength) + "...";
  return text;
}

std::string hexadecimal(const void* address, const void* base) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx",
                static_cast<unsigned long long>(static_cast<const char*>(address) -
                                                static_cast<const char*>(base)));
  return text;
}

// `module` is the path of the file, or the name by which the program was started. `exported` is the
// name of the function if the loader knows it, or else null.
std::string frame_text(const void* address, const void* base, const char* module,
                       const char* exported) {
  const auto offset = static_cast<std::uint64_t>(static_cast<const char*>(address) -
                                                 static_cast<const char*>(base));
  const char* const file = *module == '/' ? module : "/proc/self/exe";
  const std::string name = exported != nullptr ? exported : symbol_name_at(file, offset);
  return str(name.empty() ? "?" : demangle_symbol(name.c_str()), " in ",
             std::filesystem::path(module).filename().string(), "+", hexadecimal(address, base));
}

std::string frame_text_by_dladdr(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "unknown code";
  return frame_text(address, info.dli_fbase, info.dli_fname, info.dli_sname);
}

// Takes no lock. A thread that hangs in the loader may hold the loader's lock, for which dladdr
// would wait. Does not know exported functions of stripped files.
std::string frame_text_without_lock([[maybe_unused]] const void* address) {
#if __GLIBC_PREREQ(2, 35)
  dl_find_object found{};
  if (_dl_find_object(const_cast<void*>(address), &found) != 0) return "unknown code";
  const char* const path = found.dlfo_link_map->l_name;
  return frame_text(address, found.dlfo_map_start,
                    *path == '\0' ? program_invocation_short_name : path, nullptr);
#else
  return "unknown code";
#endif
}

using Lines = std::vector<std::string>;
using Frames = std::vector<const void*>;

// Returns a line for each frame up to main(). Returns nothing if that takes too long, because the
// lookup of a name may wait for a lock, or for a file system that does not answer.
std::optional<Lines> frame_texts_within(const Frames& frames, std::string (*line)(const void*),
                                        std::chrono::milliseconds timeout) {
  const auto found = std::make_shared<std::promise<Lines>>();
  auto lines = found->get_future();
  const bool done = completes_within(timeout, [found, frames, line] {
    Lines all;
    for (const void* const frame : frames) {
      all.push_back(line(frame));
      if (starts_with(all.back(), "main in ")) break;  // the callers of main are of no interest
    }
    found->set_value(std::move(all));
  });
  return done ? std::optional(lines.get()) : std::nullopt;
}

Lines stack_texts(const Frames& frames, std::chrono::milliseconds timeout) {
  if (frames.empty()) return {};
  for (const auto line : {frame_text_by_dladdr, frame_text_without_lock}) {
    if (auto lines = frame_texts_within(frames, line, timeout)) return std::move(*lines);
  }
  Lines addresses;
  for (const void* const frame : frames) addresses.push_back(hexadecimal(frame, nullptr));
  return addresses;
}

// Returns the frames of a thread, innermost first, or none if the thread does not answer.
Frames frames_of(pid_t thread, std::chrono::milliseconds timeout) {
  static std::mutex mutex;
  static int requests = 0;
  const std::lock_guard lock(mutex);
  const int signal = installed_signal();
  if (signal == 0 || thread <= 0) return {};
  Capture& capture = global_capture();
  const int request = ++requests;
  capture.wanted.store(request);
  if (!interrupt(thread, signal, request)) return {};
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (capture.answered.load() != request) {
    if (std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    int expected = request;
    if (capture.wanted.compare_exchange_strong(expected, 0)) return {};
    // The thread has begun to answer and gets the same time again.
    const auto last = deadline + timeout;
    while (capture.answered.load() != request && std::chrono::steady_clock::now() < last)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (capture.answered.load() != request) return {};
  }
  // The first two frames are the handler and the kernel's call of it. Those after the third are
  // return addresses, so one is subtracted to get into the call.
  Frames frames;
  for (int i = 2; i < capture.count; ++i)
    frames.push_back(static_cast<const char*>(capture.frames[i]) - (i > 2 ? 1 : 0));
  return frames;
}

}  // namespace

std::vector<std::string> stack_of(pid_t thread, std::chrono::milliseconds timeout) {
  return stack_texts(frames_of(thread, timeout), timeout);
}

void park_thread(pid_t thread) {
  const int signal = installed_signal();
  if (signal != 0 && thread > 0) interrupt(thread, signal, kParkRequest);
}

void preload_backtrace() {
  void* frames[2];
  backtrace(frames, 2);
}

}  // namespace hasten
