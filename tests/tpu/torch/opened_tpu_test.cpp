#include "tpu/device/opened_tpu.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "hasten/base/error.h"
#include "hasten/base/files.h"

namespace torch_opened_tpu_test {

using namespace hasten;
namespace fs = std::filesystem;

TEST_CASE("tpu: TPUs are found by PCI devices, and other Google devices are ignored") {
  const TemporaryDirectory temporary;
  const fs::path folder = temporary.path() / "devices";
  const auto add = [&](const std::string& name, const char* vendor, const char* device) {
    fs::create_directories(folder / name);
    std::ofstream(folder / name / "vendor") << vendor << "\n";
    std::ofstream(folder / name / "device") << device << "\n";
  };
  CHECK_FALSE(machine_has_tpu(folder.string()));  // the folder does not exist
  add("0000:00:00.0", "0x8086", "0x0063");
  add("0000:00:01.0", "0x1ae0", "0x0042");  // a network card
  add("0000:00:02.0", "0x1ae0", "0x001f");  // a disk
  CHECK_FALSE(machine_has_tpu(folder.string()));
  add("0000:00:03.0", "0x1ae0", "0x0063");
  CHECK(machine_has_tpu(folder.string()));
}

TEST_CASE("tpu: an index beyond the devices is refused, also without devices") {
  check_tpu_index(3, 4);
  CHECK_THROWS_WITH_AS(check_tpu_index(4, 4), "device tpu: got index 4, expected 0 to 3",
                       UsageError);
  CHECK_THROWS_WITH_AS(check_tpu_index(-1, 4), "device tpu: got index -1, expected 0 to 3",
                       UsageError);
  CHECK_THROWS_WITH_AS(check_tpu_index(0, 0),
                       "device tpu: got index 0, expected none, because the plugin has no devices",
                       UsageError);
}

}  // namespace torch_opened_tpu_test
