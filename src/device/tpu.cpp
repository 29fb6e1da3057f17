#include "device/tpu.h"

#include <unistd.h>

#include <atomic>

#include "device/tpu/open_tpu.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/config/installed_tpus.h"
#include "process/living.h"
#include "process/module.h"

namespace hasten {
namespace {

using Open = decltype(hasten_tpu_open);

const Module<Open>& module() {
  static const auto once = load_module<Open>("libhasten_tpu.so", "hasten_tpu_open");
  return once;
}

// What is open, and in which process.
struct Opened {
  std::int64_t count = 0;
  pid_t process = 0;
};

const Opened& opened() {
  static const Opened once = [] {
    if (const std::string missing = config::why_no_tpu(config::whole_environment());
        !missing.empty()) {
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
  return !config::installed_tpus(devices).empty();
}

std::string why_no_tpu() {
  const std::string missing = config::why_no_tpu(config::whole_environment());
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
