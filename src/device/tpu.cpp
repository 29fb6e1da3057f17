#include "device/tpu.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string_view>

#include "device/tpu/open_tpu.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "process/living.h"
#include "process/module.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

// The vendor of a PCI device, and of its devices those that torch_tpu 0.2 knows: v4, v5p, v5e, v6e,
// tpu7x. Google's machines without a TPU have network cards and disks of the same vendor.
constexpr std::string_view kGoogle = "0x1ae0";
constexpr std::array<std::string_view, 5> kTpus = {"0x005e", "0x0062", "0x0063", "0x006f",
                                                   "0x0076"};

std::string word_in(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

using Open = decltype(hasten_tpu_open);

const Module<Open>& module() {
  static const auto once = load_module<Open>("libhasten_tpu.so", "hasten_tpu_open");
  return once;
}

// A plugin that the user names stands for a TPU that PCI does not show; Google's own has none but
// those.
bool has_plugin_of_its_own() {
  const char* const path = std::getenv("TPU_LIBRARY_PATH");
  return path != nullptr && *path != '\0' && fs::path(path).filename() != "libtpu.so";
}

// Empty where there is something to open.
std::string why_no_hardware() {
  if (machine_has_tpu() || has_plugin_of_its_own()) return "";
  return "no TPU among this machine's PCI devices";
}

// What is open, and in which process.
struct Opened {
  std::int64_t count = 0;
  pid_t process = 0;
};

const Opened& opened() {
  static const Opened once = [] {
    if (const std::string missing = why_no_hardware(); !missing.empty()) {
      throw IoError("device.tpu-missing",
                    {.what = "device tpu",
                     .got = missing,
                     .hint = "run on a TPU machine, or without ACCELERATE_USE_TPU"});
    }
    if (module().function == nullptr) {
      throw IoError("device.tpu-module",
                    {.what = "hasten's module for TPUs",
                     .got = module().missing,
                     .hint = "apt-get install python3-dev, and build hasten again"});
    }
    const Opened it{.count = module().function(), .process = getpid()};
    static const LivingMark& mark = *new LivingMark(Living::tpu);
    static_cast<void>(mark);
    return it;
  }();
  return once;
}

std::atomic<bool>& is_open() {
  static std::atomic<bool> open = false;
  return open;
}

}  // namespace

bool machine_has_tpu(const std::string& devices) {
  std::error_code none;
  const fs::directory_iterator all(devices, none);
  return std::any_of(begin(all), end(all), [](const fs::directory_entry& each) {
    const std::string device = word_in(each.path() / "device");
    return word_in(each.path() / "vendor") == kGoogle &&
           std::find(kTpus.begin(), kTpus.end(), device) != kTpus.end();
  });
}

std::string why_no_tpu() {
  const std::string missing = why_no_hardware();
  return missing.empty() ? module().missing : missing;
}

bool tpu_is_open() { return is_open(); }

std::int64_t tpu_programs() {
  using Programs = decltype(hasten_tpu_programs);
  static const auto programs = load_module<Programs>("libhasten_tpu.so", "hasten_tpu_programs");
  return is_open() && programs.function != nullptr ? programs.function() : 0;
}

at::Device tpu_device(std::int64_t index) {
  const Opened& tpu = opened();
  is_open() = true;
  if (tpu.process != getpid()) {
    throw UsageError("device.tpu-forked",
                     {.what = "device tpu in a fork",
                      .got = str("process ", tpu.process, " has opened it, this is ", getpid()),
                      .hint = "touch the TPU inside of the forked function only"});
  }
  if (index < 0 || index >= tpu.count) {
    throw UsageError("device.tpu-index", {.what = "device tpu",
                                          .got = str("index ", index),
                                          .expected = str("0 to ", tpu.count - 1)});
  }
  return at::Device(at::kPrivateUse1, static_cast<at::DeviceIndex>(index));
}

}  // namespace hasten
