// Writes to a file without waiting for its reader.
#include "launch/output_writer.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>

namespace launch_output_writer_test {

using hasten::OutputWriter;

namespace {

struct Pipe {
  Pipe() { REQUIRE(pipe2(ends, O_CLOEXEC) == 0); }
  ~Pipe() {
    close_reader();
    close(ends[1]);
  }
  void close_reader() {
    if (ends[0] >= 0) close(ends[0]);
    ends[0] = -1;
  }
  std::string read_some() {
    char buffer[65536];
    const ssize_t got = read(ends[0], buffer, sizeof buffer);
    return {buffer, got > 0 ? static_cast<std::size_t>(got) : 0};
  }
  int ends[2];
};

struct Event {
  Event() : file(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Event() { close(file); }
  bool is_signalled() const {
    pollfd ready = {.fd = file, .events = POLLIN, .revents = 0};
    return poll(&ready, 1, 20000) == 1;
  }
  int file;
};

std::string numbered_lines(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) lines += std::to_string(i) + "\n";
  return lines;
}

}  // namespace

TEST_CASE("output writer: all lines arrive in order, and the event signals that none are left") {
  Pipe pipe;
  const Event event;
  OutputWriter writer(pipe.ends[1], event.file);
  const std::string lines = numbered_lines(100000) + std::string(20000, 'x') + "\n";
  for (std::size_t at = 0; at < lines.size(); at += 1000)  // pieces need not be whole lines
    writer.write(std::string_view(lines).substr(at, 1000));
  CHECK(writer.unwritten() > 0);
  std::string got;
  while (got.size() < lines.size()) got += pipe.read_some();
  CHECK(got == lines);
  if (writer.unwritten() > 0) CHECK(event.is_signalled());
  CHECK(writer.unwritten() == 0);
  CHECK(writer.stop() == 0);
}

TEST_CASE("output writer: lines that two threads write stay whole") {
  Pipe pipe;
  const Event event;
  OutputWriter writer(pipe.ends[1], event.file);
  constexpr int kLines = 2000;
  const auto write_lines = [&](char letter) {
    for (int i = 0; i < kLines; ++i) writer.write(std::string(9, letter) + "\n");
  };
  std::thread other(write_lines, 'b');
  write_lines('a');
  std::string got;
  while (got.size() < std::size_t{20} * kLines) got += pipe.read_some();
  other.join();
  for (std::size_t at = 0; at < got.size(); at += 10)
    REQUIRE((got.substr(at, 10) == "aaaaaaaaa\n" || got.substr(at, 10) == "bbbbbbbbb\n"));
}

TEST_CASE("output writer: unread output blocks neither write nor stop, and is counted") {
  Pipe pipe;
  const Event event;
  OutputWriter writer(pipe.ends[1], event.file);
  const std::string lines = numbered_lines(100000);
  CHECK_FALSE(writer.is_full());
  writer.write(lines);
  CHECK(writer.is_full());
  const std::size_t dropped = writer.stop();
  CHECK(dropped > 0);
  CHECK(writer.has_dropped());
  std::string got;
  if (dropped < lines.size()) got = pipe.read_some();
  CHECK(got == lines.substr(0, got.size()));
  CHECK(got.size() + dropped == lines.size());
  writer.write("later\n");
  CHECK(writer.stop() == dropped + 6);
}

TEST_CASE("output writer: a full writer signals when there is room again") {
  Pipe pipe;
  const Event event;
  OutputWriter writer(pipe.ends[1], event.file);
  writer.write(numbered_lines(100000));
  REQUIRE(writer.is_full());
  while (writer.is_full()) REQUIRE_FALSE(pipe.read_some().empty());
  writer.stop();
}

TEST_CASE("output writer: a closed reader is reported once, and the rest is dropped") {
  Pipe pipe;
  const Event event;
  pipe.close_reader();
  OutputWriter writer(pipe.ends[1], event.file);
  writer.write("line\n");
  CHECK(event.is_signalled());
  CHECK(writer.take_error() == EPIPE);
  CHECK(writer.take_error() == 0);
  CHECK(writer.unwritten() == 0);
  writer.write(numbered_lines(100000));
  CHECK_FALSE(writer.is_full());
}

TEST_CASE("output writer: on a full disk the rest is dropped") {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  REQUIRE(full >= 0);
  const Event event;
  {
    OutputWriter writer(full, event.file);
    writer.write("line\n");
    CHECK(event.is_signalled());
    CHECK(writer.take_error() == ENOSPC);
    CHECK(writer.stop() == 5);
  }
  close(full);
}

}  // namespace launch_output_writer_test
