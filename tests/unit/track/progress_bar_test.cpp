#include "hasten/track/progress_bar.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include <regex>
#include <vector>

#include "hasten/base/files.h"
#include "hasten/base/text.h"

namespace track_progress_bar_test {

using namespace hasten;

namespace {

// A file that the bar writes to; text() returns its content.
struct Log {
  Log() : file(std::fopen((folder.path() / "log").c_str(), "w")) {}
  ~Log() { std::fclose(file); }
  std::string text() const {
    std::fflush(file);
    return read_file(folder.path() / "log");
  }
  TemporaryDirectory folder;
  std::FILE* file;
};

// A terminal of the given width.
struct Terminal {
  explicit Terminal(unsigned short columns) {
    winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    REQUIRE(openpty(&main, &other, nullptr, nullptr, &size) == 0);
    file = fdopen(other, "w");
  }
  ~Terminal() {
    std::fclose(file);
    close(main);
  }
  std::string text() const {
    std::fflush(file);
    // The kernel delivers the output late and in pieces.
    std::string all;
    std::vector<char> bytes(1 << 16);
    pollfd ready{.fd = main, .events = POLLIN, .revents = 0};
    while (poll(&ready, 1, /*milliseconds=*/100) == 1) {
      const ssize_t count = read(main, bytes.data(), bytes.size());
      if (count <= 0) break;
      all.append(bytes.data(), static_cast<std::size_t>(count));
    }
    return all;
  }
  int main = -1, other = -1;
  std::FILE* file = nullptr;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines = split(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

}  // namespace

TEST_CASE("progress bar: a file gets one line for each tenth of the total") {
  const Log log;
  {
    ProgressBar bar(1000, {.description = "Training", .unit = "step", .out = log.file});
    for (int i = 0; i < 1000; ++i) {
      bar.set_postfix("loss 0.5");
      bar.update();
    }
  }
  const auto lines = lines_of(log.text());
  REQUIRE(lines.size() == 11);  // 0.1 %, and then every 10 %
  CHECK(std::regex_match(lines[5], std::regex("Training 50% \\|#+ +\\| 500/1000 "
                                              "\\[[0-9:]+<[0-9:?]+, .* loss 0\\.5\\]")));
  CHECK(starts_with(lines.back(), "Training 100% |"));
}

TEST_CASE("progress bar: progress before this run counts for the share, not for the rate") {
  const Log log;
  ProgressBar bar(100, {.out = log.file});
  bar.start_at(90);
  bar.update(0);
  CHECK(log.text().empty());
  usleep(20'000);
  bar.update(1);
  const std::string line = log.text();
  CHECK(starts_with(line, "91% |"));
  CHECK(std::regex_search(line, std::regex("91/100 \\[.*, [0-9.]+ it/s\\]")));
  // The rate is one step in 20 ms, not 91.
  CHECK_FALSE(std::regex_search(line, std::regex(", [0-9]{3,}\\.[0-9] it/s")));
}

TEST_CASE("progress bar: a disabled bar draws nothing, but its lines are written") {
  const Log log;
  ProgressBar bar(10, {.enabled = false, .out = log.file});
  bar.update(5);
  bar.write("a line");
  bar.close();
  CHECK(log.text() == "a line\n");
}

TEST_CASE("progress bar: on a terminal it redraws itself and fits the width") {
  for (const unsigned short columns : {40, 80, 200}) {
    const Terminal terminal(columns);
    ProgressBar bar(100, {.description = "Training", .out = terminal.file});
    bar.update(100);
    const std::string text = terminal.text();
    CHECK(starts_with(text, "\r\033[K"));
    const std::string last = text.substr(text.rfind("\033[K") + 3);
    CHECK(starts_with(last, "Training 100%"));
    if (columns >= 80) CHECK(last.size() <= columns);
  }
}

TEST_CASE("progress bar: a bar without the option leave is erased") {
  const Terminal terminal(80);
  ProgressBar bar(2, {.leave = false, .out = terminal.file});
  bar.update(2);
  bar.close();
  CHECK(ends_with(terminal.text(), "\r\033[K"));
}

TEST_CASE("progress bar: without a total it counts, and more steps than the total do no harm") {
  const Log log;
  ProgressBar none(0, {.out = log.file});
  none.update(3);
  none.close();
  const std::vector<std::string> counted = lines_of(log.text());
  REQUIRE(!counted.empty());
  CHECK(starts_with(counted.back(), "3 it ["));
  const Log of_few;
  ProgressBar few(2, {.out = of_few.file});
  few.update(5);
  few.close();
  for (const std::string& line : lines_of(of_few.text())) CHECK(starts_with(line, "100% "));
}

}  // namespace track_progress_bar_test
