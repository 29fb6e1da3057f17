#include "device/tpu.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string_view>

#include "device/tpu/open_tpu.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "process/living.h"

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

struct Module {
  decltype(&hasten_tpu_open) open = nullptr;
  std::string missing;
};

std::string last_error() {
  const char* const text = dlerror();
  return text == nullptr ? "unknown" : text;
}

// Beside the library that this function is in.
std::string module_path() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&tpu_device), &info) == 0) return {};
  return (fs::path(info.dli_fname).parent_path() / "libhasten_tpu.so").string();
}

// Never unloaded: the interpreter in it lives as long as the process.
Module load() {
  void* const library = dlopen(module_path().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {.missing = last_error()};
  const auto open = reinterpret_cast<decltype(&hasten_tpu_open)>(dlsym(library, "hasten_tpu_open"));
  if (open == nullptr) return {.missing = last_error()};
  return {.open = open};
}

const Module& module() {
  static const Module once = load();
  return once;
}

// A plugin that the user names stands for a TPU that PCI does not show; Google's own has none but
// those.
bool has_plugin_of_its_own() {
  const char* const path = std::getenv("TPU_LIBRARY_PATH");
  return path != nullptr && *path != '\0' && fs::path(path).filename() != "libtpu.so";
}

// What is open, and in which process.
struct Opened {
  std::int64_t count = 0;
  pid_t process = 0;
};

const Opened& opened() {
  static const Opened once = [] {
    if (!machine_has_tpu() && !has_plugin_of_its_own()) {
      throw IoError("device.tpu-missing",
                    {.what = "device tpu",
                     .got = "no TPU among this machine's PCI devices",
                     .hint = "run on a TPU machine, or without ACCELERATE_USE_TPU"});
    }
    if (module().open == nullptr) {
      throw IoError("device.tpu-module",
                    {.what = "hasten's module for TPUs",
                     .got = module().missing,
                     .hint = "apt-get install python3-dev, and build hasten again"});
    }
    const Opened it{.count = module().open(), .process = getpid()};
    static const LivingMark& mark = *new LivingMark(Living::tpu);
    static_cast<void>(mark);
    return it;
  }();
  return once;
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
  if (!machine_has_tpu() && !has_plugin_of_its_own())
    return "no TPU among this machine's PCI devices";
  return module().missing;
}

at::Device tpu_device(std::int64_t index) {
  const Opened& tpu = opened();
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
