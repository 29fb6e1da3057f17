#include "launch/output_writer.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <system_error>

#include "base/without_signals.h"

namespace hasten {
namespace {

constexpr std::size_t kFull = 256 << 10;
// The last words of many ranks at once, and failures' texts, still find room beyond `kFull`.
constexpr std::size_t kLimit = 16 << 20;

// The lines at the beginning of `text` that one write is to take: as many as a pipe takes as a
// whole, or one that is longer.
std::string_view piece_of(std::string_view text) {
  if (text.size() <= PIPE_BUF) return text;
  std::size_t end = text.rfind('\n', PIPE_BUF - 1);
  if (end == text.npos) end = text.find('\n');
  return text.substr(0, end == text.npos ? end : end + 1);
}

// May block, and is the only place at which stop() may end the thread.
ssize_t write_piece(int file, std::string_view piece) {
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr);
  const ssize_t result = write(file, piece.data(), piece.size());
  int error = errno;
  if (result < 0 && error == EAGAIN) {  // somebody has made the file non-blocking
    pollfd ready = {.fd = file, .events = POLLOUT, .revents = 0};
    poll(&ready, 1, -1);
    error = EINTR;
  }
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  errno = error;
  return result;
}

}  // namespace

OutputWriter::OutputWriter(int file, int event) : file_(file), event_(event) {}

OutputWriter::~OutputWriter() { stop(); }

void OutputWriter::write(std::string_view lines) {
  const std::lock_guard<std::mutex> turn(turn_);
  if (broken_) return;
  if (stops_ || unwritten_ + lines.size() > kLimit) {
    dropped_ += lines.size();
    return;
  }
  waiting_ += lines;
  unwritten_ += lines.size();
  if (!thread_.joinable()) {
    try {
      const WithoutSignals without;
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& error) {  // too many threads
      give_up(error.code().value());
    }
  }
  more_.notify_one();
}

bool OutputWriter::is_full() {
  const std::lock_guard<std::mutex> turn(turn_);
  if (unwritten_ < kFull) return false;
  wakes_ = true;
  wake_at_ = kFull / 2;
  return true;
}

std::size_t OutputWriter::unwritten() {
  const std::lock_guard<std::mutex> turn(turn_);
  wakes_ = unwritten_ > 0;
  wake_at_ = 0;
  return unwritten_;
}

bool OutputWriter::has_dropped() {
  const std::lock_guard<std::mutex> turn(turn_);
  return dropped_ > 0;
}

int OutputWriter::take_error() {
  const std::lock_guard<std::mutex> turn(turn_);
  const int error = error_;
  if (error > 0) error_ = -1;
  return error > 0 ? error : 0;
}

std::size_t OutputWriter::stop() {
  {
    const std::lock_guard<std::mutex> turn(turn_);
    stops_ = true;
  }
  more_.notify_one();
  if (thread_.joinable()) {
    pthread_cancel(thread_.native_handle());
    thread_.join();
  }
  dropped_ += unwritten_;
  unwritten_ = 0;
  return dropped_;
}

void OutputWriter::run() {
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  std::unique_lock<std::mutex> turn(turn_);
  while (true) {
    more_.wait(turn, [this] { return stops_ || !waiting_.empty(); });
    if (stops_) return;
    batch_.swap(waiting_);
    turn.unlock();
    write_batch();
    turn.lock();
    batch_.clear();
  }
}

void OutputWriter::write_batch() {
  for (offset_ = 0; offset_ < batch_.size();) {
    const std::string_view piece = piece_of(std::string_view(batch_).substr(offset_));
    const ssize_t result = write_piece(file_, piece);
    if (!take_result(result, errno, piece.size())) return;
  }
}

// False where nothing more is to be written of this batch.
bool OutputWriter::take_result(ssize_t result, int error, std::size_t size) {
  const std::lock_guard<std::mutex> turn(turn_);
  std::size_t done = result > 0 ? static_cast<std::size_t>(result) : 0;
  if (result < 0 && error != EINTR) {
    if (error != ENOSPC && error != EDQUOT) {
      give_up(error);
      return false;
    }
    if (error_ == 0) error_ = error;
    done = size;  // the disk may have room later
    dropped_ += size;
    wake_caller();
  }
  offset_ += done;
  unwritten_ -= done;
  if (wakes_ && unwritten_ <= wake_at_) wake_caller();
  return !stops_;
}

void OutputWriter::give_up(int error) {
  error_ = error;
  broken_ = true;
  waiting_.clear();
  unwritten_ = 0;
  wake_caller();
}

void OutputWriter::wake_caller() {
  wakes_ = false;
  eventfd_write(event_, 1);
}

}  // namespace hasten
