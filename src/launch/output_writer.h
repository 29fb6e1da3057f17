// File: launch/output_writer.h (internal)
// Writes text to one of this process's files (a terminal, a pipe, a socket, a regular file) and
// never makes its caller wait for whoever reads there.
//
//   OutputWriter writer(STDOUT_FILENO, event);
//   writer.write("[0] a line\n");             // returns at once
//   if (writer.is_full()) ...                 // the reader is slow; `event` tells when it has read
//   const std::size_t dropped = writer.stop();
//
// A thread of its own writes, since nothing else does for every kind of file. O_NONBLOCK belongs to
// the open file, which this process shares with the user's shell. A poll that says "writable" does
// not promise that a terminal takes a whole line, or that another writer of the same pipe has left
// any room. /proc/self/fd/1 cannot be opened where it is a socket, and a regular file that is
// opened again has an offset of its own.
//
// Lines of up to 4096 bytes stay whole where others write to the same pipe. Throws nothing.
// Thread rule: one thread calls.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace hasten {

class OutputWriter {
 public:
  // `event` is an eventfd; it is written to when is_full() or unwritten() has asked for it, and
  // when writing fails.
  OutputWriter(int file, int event);
  OutputWriter(const OutputWriter&) = delete;
  OutputWriter& operator=(const OutputWriter&) = delete;
  ~OutputWriter();

  // Takes whole lines, also where it is full: up to a limit for what must not be lost, beyond which
  // they are dropped and counted.
  void write(std::string_view lines);
  // Whether the caller should bring no more lines. The event tells when that has changed.
  bool is_full();
  // How many bytes wait to be written. The event tells when there are none.
  std::size_t unwritten();
  bool has_dropped();
  // The errno of a write that failed, told once; 0: none. What waits is then dropped, unless the
  // file may take more later (a full disk).
  int take_error();
  // Ends the thread, even in the middle of a write that does not return. Returns how many bytes
  // were dropped so far.
  std::size_t stop();

 private:
  void run();
  void write_batch();
  bool take_result(ssize_t result, int error, std::size_t size);
  void give_up(int error);
  void wake_caller();

  const int file_, event_;
  std::mutex turn_;
  std::condition_variable more_;
  std::thread thread_;
  std::string waiting_;  // until the thread takes them
  std::string batch_;    // the thread writes these
  std::size_t offset_ = 0;
  std::size_t unwritten_ = 0, dropped_ = 0;
  std::size_t wake_at_ = 0;  // this many unwritten bytes or fewer
  bool wakes_ = false, stops_ = false, broken_ = false;
  int error_ = 0;
};

}  // namespace hasten
