#include "launch/console.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto kWithoutProgress = 2s;
constexpr auto kInAll = 5s;
constexpr auto kForLastMessage = 500ms;

const char* name_of(int stream) { return stream == 1 ? "standard output" : "standard error"; }

bool same_file(int one, int other) {
  struct stat first {
  }, second{};
  return fstat(one, &first) == 0 && fstat(other, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

int new_event() {
  const int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event < 0)
    throw IoError("io.write", {.what = "creating an eventfd", .got = std::strerror(errno)});
  return event;
}

// How long output is lost after a write has failed with `error`.
const char* after(int error) {
  const bool may_recover = error == ENOSPC || error == EDQUOT;
  return may_recover ? "until writing succeeds again" : "from now on";
}

}  // namespace

void open_closed_streams() {
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(file, F_GETFD) >= 0) continue;
    [[maybe_unused]] const int lowest = open("/dev/null", O_RDWR);  // has the number `file`
  }
}

Console::Console() : event_(new_event()) {
  writers_[0] = std::make_unique<OutputWriter>(STDOUT_FILENO, event_.get());
  if (!same_file(STDOUT_FILENO, STDERR_FILENO))
    writers_[1] = std::make_unique<OutputWriter>(STDERR_FILENO, event_.get());
}

Console::~Console() { wait_briefly(); }  // has work only if an exception has skipped finish()

OutputWriter& Console::of(int stream) {
  return stream == 2 && writers_[1] ? *writers_[1] : *writers_[0];
}

void Console::show(std::string_view lines, int stream) { of(stream).write(lines); }

void Console::say(std::string_view message) {
  std::string text = str("hasten launch: ", message);
  if (text.back() != '\n') text += '\n';
  of(2).write(text);
}

bool Console::is_full(int stream) { return of(stream).is_full(); }

void Console::look() {
  eventfd_t times = 0;
  eventfd_read(event_.get(), &times);
  for (const int stream : {1, 2}) {
    const int error = of(stream).take_error();
    if (error == 0 || is_one_file()) continue;
    of(3 - stream)
        .write(str("hasten launch: cannot write to ", name_of(stream), ": ", std::strerror(error),
                   ". The processes continue, but their output there is lost ", after(error),
                   "\n"));
  }
  look_at_logs();
}

void Console::look_at_logs() {
  for (const auto& log : logs_) {
    const int error = log->writer().take_error();
    if (error == 0) continue;
    say(str("log_dir: cannot write to ", log->path().string(), ": ", std::strerror(error),
            ". The processes continue, but their output is not saved there ", after(error)));
  }
}

std::shared_ptr<LogFile> Console::open_log(const std::filesystem::path& path, LogFailure failure) {
  // Closes the logs of an earlier attempt that are completely written.
  std::erase_if(logs_, [](const auto& log) {
    return log.use_count() == 1 && log->writer().unwritten() == 0;
  });
  try {
    return logs_.emplace_back(std::make_shared<LogFile>(path, event_.get()));
  } catch (const IoError& error) {
    if (failure == LogFailure::throws) throw;
    say(str(error.text().what, ": ", error.text().got,
            ". The processes continue, but their output is not saved there"));
    return nullptr;
  }
}

std::size_t Console::unwritten() {
  std::size_t bytes = writers_[0]->unwritten() + (writers_[1] ? writers_[1]->unwritten() : 0);
  for (const auto& log : logs_) bytes += log->writer().unwritten();
  return bytes;
}

std::optional<int> Console::finish(Signals& signals, Patience patience) {
  const auto began = Clock::now();
  auto progress = began;
  std::optional<int> asked;
  look();
  for (std::size_t left = unwritten(), before = left; left > 0 && !asked; left = unwritten()) {
    if (left != before) progress = Clock::now();
    before = left;
    const auto now = Clock::now();
    if (patience == Patience::none && (now - progress > kWithoutProgress || now - began > kInAll))
      break;
    pollfd files[] = {{.fd = signals.file(), .events = POLLIN, .revents = 0},
                      {.fd = event_.get(), .events = POLLIN, .revents = 0}};
    poll(files, 2, patience == Patience::none ? 100 : -1);
    look();
    while (const auto number = signals.next()) {
      if (is_end(*number)) asked = *number;
    }
  }
  drop();
  return asked;
}

void Console::wait_briefly() {
  const auto limit = Clock::now() + kForLastMessage;
  while (unwritten() > 0 && Clock::now() < limit) {
    pollfd file = {.fd = event_.get(), .events = POLLIN, .revents = 0};
    poll(&file, 1, 50);
    look();
  }
}

void Console::drop_logs() {
  look_at_logs();
  for (const auto& log : logs_) {
    const bool lost = log->writer().unwritten() > 0 || log->writer().has_dropped();
    const std::size_t dropped = log->writer().stop();
    if (lost)
      say(str("log_dir: ", dropped, " bytes could not be written to ", log->path().string(),
              " and were dropped"));
  }
  logs_.clear();
}

// Drops what is not written. Reports the loss on one stream on the other one, and the loss of logs
// on standard error.
void Console::drop() {
  const int streams = is_one_file() ? 1 : 2;
  bool lost[2] = {};
  for (int i = 0; i < streams; ++i)
    lost[i] = writers_[i]->unwritten() > 0 || writers_[i]->has_dropped();
  drop_logs();
  for (int i = 0; i < streams; ++i) {
    if (!lost[i]) continue;
    const std::size_t dropped = writers_[i]->stop();
    if (is_one_file()) continue;
    writers_[1 - i]->write(str("hasten launch: ", dropped, " bytes could not be written to ",
                               name_of(i + 1), " and were dropped\n"));
  }
  wait_briefly();
  for (auto& writer : writers_) {
    if (writer) writer->stop();
  }
}

}  // namespace hasten
