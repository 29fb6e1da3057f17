// File: launch/output_writer.h (internal)
// Writes text to one of this process's files (a terminal, a pipe, a socket, a regular file), and
// never makes its caller wait for the reader of that file.
//
//   OutputWriter writer(STDOUT_FILENO, event);
//   writer.write("[0] a line\n");             // returns at once
//   if (writer.is_full()) ...                 // the reader is slow; `event` wakes when it has read
//   const std::size_t dropped = writer.stop();
//
// A thread does the writing, since no other way works for every kind of file. O_NONBLOCK belongs to
// the open file, which this process shares with the user's shell. A poll that reports "writable"
// does not guarantee that a terminal takes a whole line, or that another writer of the same pipe
// leaves any room. /proc/self/fd/1 cannot be opened if it is a socket, and a regular file that is
// opened again has an offset of its own.
//
// A write to a file system that hangs cannot be interrupted: its thread is detached and ends with
// the process. Lines of up to 4096 bytes stay whole if others write to the same pipe.
//
// The constructor throws IoError "launch.start" if the system has no thread left, and "io.write" if
// it has no file number left; nothing else throws. Thread rule: write() from any thread, the other
// calls from one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <thread>

namespace hasten {

class OutputWriter {
 public:
  // Writes to a duplicate of `file`. `event` is an eventfd, which must stay open until stop(). It
  // becomes readable as described at is_full() and unwritten(), and when writing fails.
  OutputWriter(int file, int event);
  OutputWriter(const OutputWriter&) = delete;
  OutputWriter& operator=(const OutputWriter&) = delete;
  ~OutputWriter();

  // Accepts whole lines, even if is_full(). Drops and counts the lines beyond a limit of 16 MiB.
  void write(std::string_view lines);
  // True if 256 KiB or more are unwritten, so that the caller should write no more lines for now.
  // The event then reports when half of that is left.
  bool is_full();
  // Returns the number of unwritten bytes. The event then reports when there are none.
  std::size_t unwritten();
  bool has_dropped();
  // Returns the errno of a failed write once, or 0 if there is none. Unwritten lines are then
  // dropped, unless the file may accept more later (a full disk).
  int take_error();
  // Ends the thread, even during a write that does not return, and drops the unwritten lines.
  // Returns the total number of dropped bytes.
  std::size_t stop();

 private:
  class Queue;
  const std::shared_ptr<Queue> queue_;  // shared with the thread, which may live longer
  std::thread thread_;
};

}  // namespace hasten
