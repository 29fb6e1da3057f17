#include "launch/console.h"

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

constexpr auto kMaxStall = 2s;
constexpr auto kMaxFinishTime = 5s;
constexpr auto kLastMessageTimeout = 500ms;

const char* stream_name(int stream) { return stream == 1 ? "standard output" : "standard error"; }

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

// Returns for how long output is lost after a write has failed with `error`.
const char* loss_duration(int error) {
  const bool may_recover = error == ENOSPC || error == EDQUOT;
  return may_recover ? "until writing succeeds again" : "from now on";
}

}  // namespace

Console::Console() : event_(new_event()) {
  writers_[0] = std::make_unique<OutputWriter>(STDOUT_FILENO, event_.get());
  if (!same_file(STDOUT_FILENO, STDERR_FILENO))
    writers_[1] = std::make_unique<OutputWriter>(STDERR_FILENO, event_.get());
}

Console::~Console() { wait_briefly(); }  // waits only if an exception skipped finish()

OutputWriter& Console::writer_for(int stream) {
  return stream == 2 && writers_[1] ? *writers_[1] : *writers_[0];
}

void Console::print_output(std::string_view lines, int stream) { writer_for(stream).write(lines); }

void Console::print_message(std::string_view message) {
  std::string text = str("hasten launch: ", message);
  if (text.back() != '\n') text += '\n';
  writer_for(2).write(text);
}

bool Console::is_full(int stream) { return writer_for(stream).is_full(); }

void Console::handle_event() {
  eventfd_t times = 0;
  eventfd_read(event_.get(), &times);
  for (const int stream : {1, 2}) {
    const int error = writer_for(stream).take_error();
    if (error == 0 || is_one_file()) continue;
    writer_for(3 - stream)
        .write(str("hasten launch: cannot write to ", stream_name(stream), ": ",
                   std::strerror(error),
                   ". The processes continue, but their output there is lost ",
                   loss_duration(error), "\n"));
  }
  report_log_errors();
}

void Console::report_log_errors() {
  for (const auto& log : logs_) {
    const int error = log->writer().take_error();
    if (error == 0) continue;
    print_message(str("log_dir: cannot write to ", log->path().string(), ": ", std::strerror(error),
                      ". The processes continue, but their output is not saved there ",
                      loss_duration(error)));
  }
}

std::shared_ptr<LogFile> Console::open_log(const std::filesystem::path& path,
                                           LogErrorPolicy policy) {
  // Closes the logs of an earlier attempt that are completely written.
  std::erase_if(logs_, [](const auto& log) {
    return log.use_count() == 1 && log->writer().unwritten() == 0;
  });
  try {
    return logs_.emplace_back(std::make_shared<LogFile>(path, event_.get()));
  } catch (const IoError& error) {
    if (policy == LogErrorPolicy::throw_error) throw;
    print_message(str(error.text().what, ": ", error.text().got,
                      ". The processes continue, but their output is not saved there"));
    return nullptr;
  }
}

std::size_t Console::unwritten() {
  std::size_t bytes = writers_[0]->unwritten() + (writers_[1] ? writers_[1]->unwritten() : 0);
  for (const auto& log : logs_) bytes += log->writer().unwritten();
  return bytes;
}

std::optional<int> Console::finish(Signals& signals, FinishPolicy policy) {
  const auto began = Clock::now();
  auto progress = began;
  std::optional<int> termination_signal;
  handle_event();
  for (std::size_t left = unwritten(), before = left; left > 0 && !termination_signal;
       left = unwritten()) {
    if (left != before) progress = Clock::now();
    before = left;
    const auto now = Clock::now();
    if (policy == FinishPolicy::brief &&
        (now - progress > kMaxStall || now - began > kMaxFinishTime))
      break;
    pollfd files[] = {{.fd = signals.descriptor(), .events = POLLIN, .revents = 0},
                      {.fd = event_.get(), .events = POLLIN, .revents = 0}};
    poll(files, 2, policy == FinishPolicy::brief ? 100 : -1);
    handle_event();
    while (const auto number = signals.next()) {
      if (is_termination_signal(*number)) termination_signal = *number;
    }
  }
  drop_unwritten();
  return termination_signal;
}

void Console::wait_briefly() {
  const auto limit = Clock::now() + kLastMessageTimeout;
  while (unwritten() > 0 && Clock::now() < limit) {
    pollfd file = {.fd = event_.get(), .events = POLLIN, .revents = 0};
    poll(&file, 1, 50);
    handle_event();
  }
}

void Console::drop_logs() {
  report_log_errors();
  for (const auto& log : logs_) {
    const bool lost = log->writer().unwritten() > 0 || log->writer().has_dropped();
    const std::size_t dropped = log->writer().stop();
    if (lost)
      print_message(str("log_dir: ", dropped, " bytes could not be written to ",
                        log->path().string(), " and were dropped"));
  }
  logs_.clear();
}

// Drops the unwritten output. Reports the loss of one stream on the other stream, and the loss of
// logs on standard error.
void Console::drop_unwritten() {
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
                               stream_name(i + 1), " and were dropped\n"));
  }
  wait_briefly();
  for (auto& writer : writers_) {
    if (writer) writer->stop();
  }
}

}  // namespace hasten
