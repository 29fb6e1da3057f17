#include "tpu/device/chip_holder.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "hasten/base/files.h"

namespace torch_chip_holder_test {

using namespace hasten;
namespace fs = std::filesystem;

TEST_CASE("chip holder: a TPU's files are its devices and libtpu's lock") {
  const TemporaryDirectory temporary;
  const fs::path& folder = temporary.path();
  fs::create_directories(folder / "vfio");
  for (const char* const name : {"accel0", "accel13", "accelerator", "null", "vfio/7", "vfio/vfio"})
    std::ofstream(folder / name) << '\n';
  auto files = chip_files({}, folder, folder / "lock");
  std::sort(files.begin(), files.end());
  CHECK(files == std::vector<fs::path>{folder / "accel0", folder / "accel13", folder / "lock",
                                       folder / "vfio/7"});
  CHECK(chip_files({}, folder / "nothing", "lock").size() == 1);
}

TEST_CASE("chip holder: the process that has a file open is named, except this one") {
  const TemporaryDirectory temporary;
  const fs::path file = temporary.path() / "chip";
  std::ofstream(file) << '\n';
  const int own = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  CHECK_FALSE(find_chip_holder({file}));
  const pid_t other = fork();
  if (other == 0) {
    pause();
    _exit(0);
  }
  const auto holder = find_chip_holder({"/nowhere", file});
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
  REQUIRE(holder);
  CHECK(holder->process == other);
  CHECK(holder->file == file);
  CHECK_FALSE(holder->name.empty());
  CHECK_FALSE(find_chip_holder({file}));
  close(own);
}

}  // namespace torch_chip_holder_test
