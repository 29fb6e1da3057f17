#include "track/terminal_restore.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/descriptor.h"
#include "base/utf8.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

constexpr off_t kMaxReadBytes = 16384;  // bytes of captured output that captured_lines() reads

// Everything that restore_terminal() needs. A signal handler reads it, so nothing in it allocates.
struct State {
  std::atomic<bool> in_use{false}, is_drawing{false};
  pid_t process = 0;
  int terminal = -1;
  bool has_modes = false;
  termios modes{};
  std::array<char, 256> reset_sequence{};
  std::atomic<std::size_t> reset_sequence_size{0};
  pid_t group = 0;
  int captured_output = -1;            // a file descriptor
  std::array<int, 2> streams{-1, -1};  // the process's own standard output and standard error
};
State state;
static_assert(std::atomic<bool>::is_always_lock_free, "a handler may not wait for a lock");

void wait_for_drawing() {
  for (int i = 0; i < 20 && state.is_drawing; ++i) {
    const timespec pause{.tv_sec = 0, .tv_nsec = 5'000'000};
    nanosleep(&pause, nullptr);
  }
}

void print_captured_output() {
  char bytes[4096];
  off_t at = 0;
  for (;;) {
    const ssize_t size = pread(state.captured_output, bytes, sizeof bytes, at);
    if (size <= 0) return;
    write_all(STDERR_FILENO, {bytes, static_cast<std::size_t>(size)});
    at += size;
  }
}

void restore_and_raise(int number) {
  const int error = errno;
  restore_terminal();
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  sigaction(number, &action, nullptr);
  raise(number);  // delivered when this handler returns
  errno = error;
}

// Redirects a standard stream to the file of captured output and returns a copy of the original
// stream.
int redirect(int stream) {
  const int copy = fcntl(stream, F_DUPFD_CLOEXEC, 3);
  if (copy >= 0) dup2(state.captured_output, stream);
  return copy;
}

}  // namespace

BackgroundOutputScope::BackgroundOutputScope() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTTOU);
  pthread_sigmask(SIG_BLOCK, &set, &before_);
}

BackgroundOutputScope::~BackgroundOutputScope() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

bool use_terminal(const TerminalUse& use) {
  if (state.in_use) return false;
  state.captured_output = memfd_create("hasten-output", MFD_CLOEXEC);
  if (state.captured_output < 0) return false;
  fcntl(state.captured_output, F_SETFL, O_APPEND);
  state.process = getpid();
  state.terminal = use.terminal;
  state.group = use.group;
  state.has_modes = use.terminal >= 0 && tcgetattr(use.terminal, &state.modes) == 0;
  state.reset_sequence_size = 0;
  std::fflush(stdout);
  state.streams = {-1, -1};
  // A standard output that is a file or a pipe is not moved, unless another process draws.
  const bool captures_stdout = use.terminal < 0 || isatty(STDOUT_FILENO) != 0;
  if (captures_stdout) state.streams[0] = redirect(STDOUT_FILENO);
  state.streams[1] = redirect(STDERR_FILENO);
  state.in_use = true;
  static const int at_exit = std::atexit([] { restore_terminal(); });
  (void)at_exit;
  return true;
}

void set_reset_sequence(const std::string& reset_sequence) {
  const std::size_t size = std::min(reset_sequence.size(), state.reset_sequence.size());
  std::memcpy(state.reset_sequence.data(), reset_sequence.data(), size);
  state.reset_sequence_size = size;
}

void restore_terminal() noexcept {
  if (!state.in_use || state.process != getpid() || !state.in_use.exchange(false)) return;
  wait_for_drawing();
  const BackgroundOutputScope allowed;
  if (state.terminal >= 0) {
    write_all(state.terminal, {state.reset_sequence.data(), state.reset_sequence_size});
    if (state.has_modes) tcsetattr(state.terminal, TCSADRAIN, &state.modes);
    if (state.group != 0) tcsetpgrp(state.terminal, state.group);
  }
  for (int stream = 0; stream < 2; ++stream) {
    if (state.streams[static_cast<std::size_t>(stream)] < 0) continue;
    dup2(state.streams[static_cast<std::size_t>(stream)], stream + 1);
    close(state.streams[static_cast<std::size_t>(stream)]);
  }
  print_captured_output();
  close(state.captured_output);
}

bool is_terminal_in_use() { return state.in_use; }

std::vector<std::string> captured_lines(std::size_t max_lines) {
  if (!state.in_use || max_lines == 0) return {};
  const off_t size = lseek(state.captured_output, 0, SEEK_END),
              from = std::max<off_t>(0, size - kMaxReadBytes);
  std::string bytes(static_cast<std::size_t>(std::max<off_t>(0, size - from)), '\0');
  const ssize_t got = pread(state.captured_output, bytes.data(), bytes.size(), from);
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(0, got)));
  std::vector<std::string> lines;
  for (std::string& line : split(bytes, '\n')) {
    std::string shown;
    for (const char c : line) shown += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c;
    if (!trim(shown).empty()) lines.push_back(repair_utf8(shown));
  }
  if (lines.size() > max_lines)
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(max_lines));
  return lines;
}

DrawingScope::DrawingScope() {
  state.is_drawing = true;
  may_draw_ = state.in_use;
  if (!may_draw_) state.is_drawing = false;
}

DrawingScope::~DrawingScope() { state.is_drawing = false; }

void restore_terminal_at_signals() {
  for (const int number :
       {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) continue;
    action = {};
    action.sa_handler = restore_and_raise;
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, nullptr);
  }
}

}  // namespace hasten
