// One process does the work for all processes, which are forks of this one.
#include "hasten/process/once.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "hasten/accelerator.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/launch/worker.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/code_of.h"

namespace process_once_test {

using namespace hasten;

namespace {

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

}  // namespace

TEST_CASE("once: a single process does the work and throws its own errors") {
  int done = 0;
  once(Group::single(), true, [&] { ++done; });
  once(Group::single(), false, [&] { ++done; });
  CHECK(done == 1);
  CHECK_THROWS_AS(once(Group::single(), true, [] { throw std::out_of_range("far"); }),
                  std::out_of_range);
  CHECK(broadcast_from_main(Group::single(), [] { return "here"; }) == "here");
}

TEST_CASE("once: the text and the exception of the main process reach all processes") {
  notebook_launcher(
      [] {
        const Accelerator accelerator;
        const Group& group = accelerator.group();
        const std::string said = broadcast_from_main(
            group, [&] { return str("by rank ", group.rank(), std::string(1, '\0')); });
        require(said == std::string("by rank 0\0", 10), "said " + said);
        try {
          once(group, group.rank() == 1, [] {
            throw IoError("io.full", {.what = "a \"disk\"\n",
                                      .got = "nothing left",
                                      .expected = "room",
                                      .hint = "delete"});
          });
          require(false, "no error");
        } catch (const Error& error) {
          require(error.code() == "io.full" && error.exit_code() == 4, error.what());
          require(error.text().what == "a \"disk\"\n" && error.text().got == "nothing left" &&
                      error.text().expected == "room" && error.hint() == "delete",
                  error.what());
        }
        try {
          once(group, group.rank() == 2, [] { throw std::runtime_error("odd \xff byte"); });
          require(false, "no error");
        } catch (const Error& error) {
          require(group.rank() != 2 && error.code() == "process.failed-elsewhere" &&
                      std::string(error.what()).find("rank 2") != std::string::npos,
                  error.what());
        } catch (const std::runtime_error& own) {
          require(group.rank() == 2, own.what());
        }
        require(broadcast_from_main(group, [] { return "still together"; }) == "still together",
                "after");
      },
      {.num_processes = 3});
}

TEST_CASE("once: the worker's own error is thrown, even if another rank has ended") {
  debug_launcher([] {
    const Group group = Group::form(this_worker());
    group.barrier();
    if (group.rank() == 1) _exit(0);
    const auto write = [] { throw IoError("io.write", {.what = "a full disk"}); };
    const std::string code = code_of([&] { once(group, true, write); });
    require(code == "io.write", code);
  });
}

}  // namespace process_once_test
