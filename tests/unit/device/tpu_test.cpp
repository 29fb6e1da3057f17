#include "device/tpu.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

using namespace hasten;
namespace fs = std::filesystem;

TEST_CASE("tpu: a machine has one by its PCI devices, not by other devices of Google's") {
  const fs::path folder = fs::temp_directory_path() / ("hasten-pci-" + std::to_string(getpid()));
  const auto add = [&](const std::string& name, const char* vendor, const char* device) {
    fs::create_directories(folder / name);
    std::ofstream(folder / name / "vendor") << vendor << "\n";
    std::ofstream(folder / name / "device") << device << "\n";
  };
  CHECK_FALSE(machine_has_tpu(folder.string()));  // no such folder
  add("0000:00:00.0", "0x8086", "0x0063");
  add("0000:00:01.0", "0x1ae0", "0x0042");  // a network card
  add("0000:00:02.0", "0x1ae0", "0x001f");  // a disk
  CHECK_FALSE(machine_has_tpu(folder.string()));
  add("0000:00:03.0", "0x1ae0", "0x0063");
  CHECK(machine_has_tpu(folder.string()));
  fs::remove_all(folder);
}
