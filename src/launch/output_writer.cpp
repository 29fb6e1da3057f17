#include "launch/output_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <string>

#include "base/descriptor.h"
#include "base/start_thread.h"
#include "hasten/base/error.h"

namespace hasten {
namespace {

constexpr std::size_t kSoftLimit = 256 << 10;
// Beyond kSoftLimit there is still room for the last lines of many ranks at once and for failure
// reports.
constexpr std::size_t kHardLimit = 16 << 20;
constexpr auto kStopTimeout = std::chrono::milliseconds(500);

// Returns the first lines of `text`: the lines that fit into one write to a pipe, or a single
// longer one.
std::string_view next_chunk(std::string_view text) {
  if (text.size() <= PIPE_BUF) return text;
  std::size_t end = text.rfind('\n', PIPE_BUF - 1);
  if (end == text.npos) end = text.find('\n');
  return text.substr(0, end == text.npos ? end : end + 1);
}

// AddressSanitizer marks the variables of a function on the stack. It does not remove the marks
// when pthread_cancel() unwinds the stack, and reports the next use of the memory. So the functions
// from which a thread is cancelled have no marks.
#define HASTEN_NO_SANITIZE_ADDRESS __attribute__((no_sanitize_address))

// May block. stop() can cancel the thread only here.
HASTEN_NO_SANITIZE_ADDRESS ssize_t write_chunk(int file, std::string_view chunk) {
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr);
  const ssize_t result = write(file, chunk.data(), chunk.size());
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

int duplicate_of(int file) {
  const int duplicate = fcntl(file, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (duplicate < 0)
    throw IoError("io.write", {.what = "duplicating a file number", .got = std::strerror(errno)});
  return duplicate;
}

}  // namespace

// The state that the caller and the thread share.
class OutputWriter::Queue {
 public:
  Queue(int file, int event) : file_(duplicate_of(file)), event_(event) {}

  void run();
  void write(std::string_view lines);
  bool is_full();
  std::size_t unwritten();
  bool has_dropped();
  int take_error();
  void request_stop();
  bool wait_for_end();
  std::size_t drop();

 private:
  void write_batches();
  void write_batch();
  bool handle_result(ssize_t result, int error, std::size_t size);
  void give_up(int error);
  void wake_caller();

  const Descriptor file_;
  const int event_;
  std::mutex mutex_;
  std::condition_variable work_available_, thread_ended_;
  std::string waiting_;  // lines that the thread has not taken yet
  std::string batch_;    // lines that the thread is writing
  std::size_t offset_ = 0;
  std::size_t unwritten_ = 0, dropped_ = 0;
  std::size_t wake_at_ = 0;  // wakes the caller at this many unwritten bytes or fewer
  bool wakes_caller_ = false, is_stopping_ = false, has_failed_ = false, has_ended_ = false;
  int error_ = 0;
};

OutputWriter::OutputWriter(int file, int event) : queue_(std::make_shared<Queue>(file, event)) {
  thread_ = start_required_thread("launch.start", "writes the processes' output",
                                  [queue = queue_] { queue->run(); });
}

OutputWriter::~OutputWriter() { stop(); }

void OutputWriter::write(std::string_view lines) { queue_->write(lines); }
bool OutputWriter::is_full() { return queue_->is_full(); }
std::size_t OutputWriter::unwritten() { return queue_->unwritten(); }
bool OutputWriter::has_dropped() { return queue_->has_dropped(); }
int OutputWriter::take_error() { return queue_->take_error(); }

std::size_t OutputWriter::stop() {
  queue_->request_stop();
  if (thread_.joinable()) {
    pthread_cancel(thread_.native_handle());
    if (queue_->wait_for_end()) {
      thread_.join();
    } else {
      thread_.detach();
    }
  }
  return queue_->drop();
}

void OutputWriter::Queue::request_stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_stopping_ = true;
  }
  work_available_.notify_one();
}

bool OutputWriter::Queue::wait_for_end() {
  std::unique_lock<std::mutex> lock(mutex_);
  return thread_ended_.wait_for(lock, kStopTimeout, [this] { return has_ended_; });
}

std::size_t OutputWriter::Queue::drop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  has_failed_ = true;  // the thread must not count these bytes again
  dropped_ += unwritten_;
  unwritten_ = 0;
  return dropped_;
}

void OutputWriter::Queue::write(std::string_view lines) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_stopping_ || (!has_failed_ && unwritten_ + lines.size() > kHardLimit)) {
    dropped_ += lines.size();
    return;
  }
  if (has_failed_) return;
  waiting_ += lines;
  unwritten_ += lines.size();
  work_available_.notify_one();
}

bool OutputWriter::Queue::is_full() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (unwritten_ < kSoftLimit) return false;
  wakes_caller_ = true;
  wake_at_ = kSoftLimit / 2;
  return true;
}

std::size_t OutputWriter::Queue::unwritten() {
  const std::lock_guard<std::mutex> lock(mutex_);
  wakes_caller_ = unwritten_ > 0;
  wake_at_ = 0;
  return unwritten_;
}

bool OutputWriter::Queue::has_dropped() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return dropped_ > 0;
}

int OutputWriter::Queue::take_error() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int error = error_;
  if (error > 0) error_ = -1;
  return error > 0 ? error : 0;
}

// A cancelled thread unwinds its stack, so a destructor reports its end.
void OutputWriter::Queue::run() {
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  struct End {
    ~End() {
      const std::lock_guard<std::mutex> lock(queue.mutex_);
      queue.has_ended_ = true;
      queue.thread_ended_.notify_one();
    }
    Queue& queue;
  } const end{*this};
  write_batches();
}

void OutputWriter::Queue::write_batches() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    work_available_.wait(lock, [this] { return is_stopping_ || !waiting_.empty(); });
    if (is_stopping_) return;
    batch_.swap(waiting_);
    lock.unlock();
    write_batch();
    lock.lock();
    batch_.clear();
  }
}

HASTEN_NO_SANITIZE_ADDRESS void OutputWriter::Queue::write_batch() {
  for (offset_ = 0; offset_ < batch_.size();) {
    const std::string_view chunk = next_chunk(std::string_view(batch_).substr(offset_));
    const ssize_t result = write_chunk(file_.get(), chunk);
    if (!handle_result(result, errno, chunk.size())) return;
  }
}

// Returns false if the rest of this batch must not be written.
bool OutputWriter::Queue::handle_result(ssize_t result, int error, std::size_t size) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (has_failed_) return false;  // the caller has stopped waiting
  std::size_t done = result > 0 ? static_cast<std::size_t>(result) : 0;
  if (result < 0 && error != EINTR) {
    if (error != ENOSPC && error != EDQUOT) {
      give_up(error);
      return false;
    }
    if (error_ == 0) error_ = error;
    done = size;  // skips the chunk; the disk may have room for later ones
    dropped_ += size;
    wake_caller();
  }
  offset_ += done;
  unwritten_ -= done;
  if (wakes_caller_ && unwritten_ <= wake_at_) wake_caller();
  return !is_stopping_;
}

void OutputWriter::Queue::give_up(int error) {
  error_ = error;
  has_failed_ = true;
  waiting_.clear();
  unwritten_ = 0;
  wake_caller();
}

void OutputWriter::Queue::wake_caller() {
  wakes_caller_ = false;
  eventfd_write(event_, 1);
}

}  // namespace hasten
