#include "hasten/program/run_main.h"

#include <cstdio>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <system_error>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "unit/options/support.h"
#include "unit/program/ended_process.h"

namespace program_run_main_test {

using namespace hasten;
using namespace hasten::test;

namespace {

EndedProcess end_of_main(const std::function<int()>& program) {
  return end_of_process([&] { return run_main(program); });
}

template <class Exception>
EndedProcess end_by(const Exception& exception) {
  return end_of_main([&]() -> int { throw exception; });
}

}  // namespace

TEST_SUITE("program/run_main") {
  TEST_CASE("a program that ends without an exception gives its exit code and prints nothing") {
    for (const int exit_code : {0, 1, 75}) {
      const EndedProcess ended = end_of_main([&] { return exit_code; });
      CHECK(ended.exit_code == exit_code);
      CHECK(ended.output.empty());
    }
  }

  TEST_CASE("an error of hasten is printed with its code, and gives its exit code") {
    const EndedProcess ended = end_by(
        ConfigError("config.bad-value",
                    {.what = "--steps", .got = "'x'", .expected = "a number", .hint = "use 3"}));
    CHECK(ended.exit_code == 2);
    CHECK(ended.output ==
          "error[config.bad-value]: --steps: got 'x', expected a number. Hint: use 3\n");
    CHECK(end_by(UsageError("a.b", {.what = "w"})).exit_code == 2);
    CHECK(end_by(DataError("a.b", {.what = "w"})).exit_code == 3);
    CHECK(end_by(IoError("a.b", {.what = "w"})).exit_code == 4);
    CHECK(end_by(MemoryError("a.b", {.what = "w"})).exit_code == 5);
    CHECK(end_by(DivergedError("a.b", {.what = "w"})).exit_code == 6);
  }

  TEST_CASE("an error of std::filesystem is printed as an IoError") {
    const EndedProcess ended = end_by(std::filesystem::filesystem_error(
        "cannot open", "a/missing/folder",
        std::make_error_code(std::errc::no_such_file_or_directory)));
    CHECK(ended.exit_code == 4);
    CHECK(starts_with(ended.output, "error[io."));
    CHECK(contains(ended.output, "a/missing/folder"));
  }

  TEST_CASE("another std::exception is printed with its message, and gives exit code 1") {
    const EndedProcess ended = end_by(std::runtime_error("two lines\nof text"));
    CHECK(ended.exit_code == 1);
    CHECK(ended.output == "error: two lines\nof text\n");
  }

  TEST_CASE("the list of functions of LibTorch's errors is not printed") {
    const std::string functions =
        "frame #0: c10::Error::Error() + 0x9d (0x7f in libc10.so)\nframe #1: main + 0x1 (0x1)\n";
    const EndedProcess lazy = end_by(std::runtime_error(
        "The size of tensor a (2)\nis 3\nException raised from infer_size at E.cpp:35 (most recent "
        "call first):\n" +
        functions));
    CHECK(lazy.exit_code == 1);
    CHECK(lazy.output == "error: The size of tensor a (2)\nis 3\n");
    const EndedProcess enforced =
        end_by(std::runtime_error("[enforce fail at alloc_cpu.cpp:117] err == 0.\n" + functions));
    CHECK(enforced.output == "error: [enforce fail at alloc_cpu.cpp:117] err == 0.\n");
  }

  TEST_CASE("an object that is not a std::exception gives a sentence and exit code 1") {
    const EndedProcess ended = end_by(7);
    CHECK(ended.exit_code == 1);
    CHECK(ended.output == "error: the program threw an object that is not a std::exception\n");
  }

  TEST_CASE("the objects of the program are destroyed before the error is printed") {
    struct Goodbye {
      ~Goodbye() { std::fputs("destroyed\n", stderr); }
    };
    const EndedProcess ended = end_of_main([]() -> int {
      const Goodbye goodbye;
      throw DataError("a.b", {.what = "the row is bad"});
    });
    CHECK(ended.output == "destroyed\nerror[a.b]: the row is bad\n");
  }
}

}  // namespace program_run_main_test
