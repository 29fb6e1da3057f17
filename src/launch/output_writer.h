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
// A write to a file system that hangs cannot be interrupted: such a thread is left to the end of
// the process. Lines of up to 4096 bytes stay whole where others write to the same pipe.
//
// The constructor throws IoError "launch.start" where the system has no thread left, and "io.write"
// where it has no file number left; nothing else throws. Thread rule: any thread writes, one thread
// makes the other calls.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <thread>

namespace hasten {

class OutputWriter {
 public:
  // Writes to a duplicate of `file`. `event` is an eventfd; it is written to when is_full() or
  // unwritten() has asked for it, and when writing fails. It must stay open until stop().
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
  class Queue;
  const std::shared_ptr<Queue> queue_;  // the thread may live longer
  std::thread thread_;
};

}  // namespace hasten
