// Tests how TPUs are found by PCI devices and by variables.
#include "tpu/machine/installed_tpus.h"

#include "hasten/base/files.h"
#include "unit/options/support.h"

namespace core_installed_tpus_test {

using namespace hasten;
namespace fs = std::filesystem;

namespace {

struct Bus {
  TemporaryDirectory temporary;
  const fs::path& folder = temporary.path();
  std::string devices() const { return (folder / "devices").string(); }
  std::string exposed() const { return (folder / "vfio").string(); }
  void add(const std::string& name, const char* vendor, const char* device,
           const std::string& group = "") const {
    const fs::path place = folder / "devices" / name;
    fs::create_directories(place);
    std::ofstream(place / "vendor") << vendor << "\n";
    std::ofstream(place / "device") << device << "\n";
    if (!group.empty())
      fs::create_symlink("/sys/kernel/iommu_groups/" + group, place / "iommu_group");
  }
  void expose(const std::string& group) const {
    fs::create_directories(exposed());
    std::ofstream(fs::path(exposed()) / group) << "";
  }
};

}  // namespace

TEST_CASE("installed tpus: they are counted by PCI devices, in a container only its own") {
  const Bus bus;
  const auto found = [&] { return config::installed_tpus(bus.devices(), bus.exposed()); };
  CHECK(found().empty());
  bus.add("0", "0x1ae0", "0x0042");  // a network card
  bus.add("1", "0x8086", "0x0063");
  CHECK(found().empty());
  for (int chip = 2; chip < 6; ++chip)
    bus.add(std::to_string(chip), "0x1ae0", "0x0063", std::to_string(chip));
  CHECK(found() == std::vector<std::string>(4, "v5e"));  // the driver is older than VFIO
  bus.expose("3");
  bus.expose("5");
  CHECK(found() == std::vector<std::string>(2, "v5e"));
}

TEST_CASE("installed tpus: each generation is recognized by its number") {
  const std::vector<std::pair<const char*, const char*>> all = {
      {"0x005e", "v4"}, {"0x0062", "v5p"}, {"0x0063", "v5e"}, {"0x006f", "v6e"}, {"0x0076", "7x"}};
  for (const auto& [device, generation] : all) {
    const Bus bus;
    bus.add("0", "0x1ae0", device);
    CHECK(config::installed_tpus(bus.devices()) == std::vector<std::string>{generation});
  }
}

TEST_CASE("installed tpus: a plugin counts as a TPU, except Google's own") {
  CHECK(!config::names_tpu_plugin({}));
  CHECK(!config::names_tpu_plugin({{"TPU_LIBRARY_PATH", "/a/libtpu.so"}}));
  CHECK(config::names_tpu_plugin({{"TPU_LIBRARY_PATH", "/a/plugin.so"}}));
  if (!config::installed_tpus().empty()) return;  // a TPU machine always has TPUs
  CHECK(!config::missing_tpu_reason({}).empty());
  CHECK(!config::missing_tpu_reason({{"TPU_LIBRARY_PATH", ""}}).empty());
  CHECK(!config::missing_tpu_reason({{"TPU_LIBRARY_PATH", "/a/libtpu.so"}}).empty());
  CHECK(config::missing_tpu_reason({{"TPU_LIBRARY_PATH", "/a/plugin.so"}}).empty());
  CHECK(config::tpu_processes({}) == 8);
}

TEST_CASE("installed tpus: variables name the chips of a process") {
  CHECK(!config::tpu_chips({}));
  CHECK(config::tpu_processes({{"TPU_VISIBLE_CHIPS", "2,3"}}) == 2);
  CHECK(config::tpu_chips({{"TPU_VISIBLE_CHIPS", "2,3"}}) == std::vector<std::string>{"2", "3"});
  CHECK(config::tpu_chips({{"TPU_VISIBLE_CHIPS", "2,3"}, {"TPU_VISIBLE_DEVICES", "1"}}) ==
        std::vector<std::string>{"1"});
  for (const char* wrong : {"a", "0,0", "0,", ",", "-1", "1.5", "99999"}) {
    CAPTURE(wrong);
    CHECK(test::error_of([&] {
            config::tpu_chips({{"TPU_VISIBLE_CHIPS", wrong}});
          }).code == "launch.environment");
  }
}

}  // namespace core_installed_tpus_test
