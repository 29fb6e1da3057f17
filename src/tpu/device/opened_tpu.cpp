#include "tpu/device/opened_tpu.h"

#include <unistd.h>

#include <atomic>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "tpu/device/chip_holder.h"
#include "tpu/device/tpu_function.h"
#include "tpu/machine/installed_tpus.h"
#include "tpu/module/open_tpu.h"

namespace hasten {
namespace {

using Open = decltype(hasten_tpu_open);
constexpr const char* kOpen = "hasten_tpu_open";

// The number of open devices, and the process that opened them.
struct OpenedTpu {
  std::int64_t count = 0;
  pid_t process = 0;
};

bool user_names_plugin() { return config::names_tpu_plugin(config::whole_environment()); }

// Checks that each process has a chip; the chips of a plugin that the user names are not known.
void check_chips(const Worker& worker) {
  const auto chips = static_cast<std::int64_t>(config::installed_tpus().size());
  if (user_names_plugin() || worker.local_world_size <= chips) return;
  throw UsageError("device.tpu-chips",
                   {.what = "device tpu",
                    .got = str(worker.local_world_size, " processes on this machine"),
                    .expected = str("at most ", chips, ", one per TPU of this machine")});
}

// Checks that no other process has the TPU, because libtpu would wait for it or end this process. A
// job with several processes is not checked, because the other processes have chips open.
void check_free(const Worker& worker) {
  if (user_names_plugin() || worker.local_world_size > 1) return;
  const auto holder = find_chip_holder(chip_files(config::tpu_chips(config::whole_environment())));
  if (!holder) return;
  throw IoError("device.tpu-busy",
                {.what = "device tpu",
                 .got = str("process ", holder->process, " (", holder->name, ") has ",
                            holder->file.string(), " open"),
                 .expected = "a TPU that no other process uses",
                 .hint = str("wait until it ends, or end it: kill ", holder->process)});
}

std::atomic<bool>& is_open() {
  static std::atomic<bool> open = false;
  return open;
}

const OpenedTpu& open_tpu_once(const Worker& worker, TpuJob job) {
  static const OpenedTpu once = [&] {
    if (const std::string missing = config::missing_tpu_reason(config::whole_environment());
        !missing.empty()) {
      throw IoError("device.tpu-missing",
                    {.what = "device tpu",
                     .got = missing,
                     .hint = "run on a machine with a TPU, or request none (ACCELERATE_USE_TPU, "
                             "AcceleratorOptions::tpu)"});
    }
    Open& open = tpu_function<Open>(kOpen);
    check_chips(worker);
    check_free(worker);
    const auto variables = tpu_variables(worker, job, config::whole_environment());
    const std::int64_t slice_processes = job == TpuJob::one_slice ? worker.local_world_size : 0;
    const OpenedTpu result{.count = open(slice_processes, variables), .process = getpid()};
    is_open() = true;
    return result;
  }();
  return once;
}

}  // namespace

bool machine_has_tpu(const std::string& devices) {
  return !config::installed_tpus(devices).empty();
}

std::string unusable_tpu_reason() {
  const std::string missing = config::missing_tpu_reason(config::whole_environment());
  return missing.empty() ? find_tpu_function<Open>(kOpen).missing : missing;
}

bool tpu_is_open() { return is_open(); }

std::int64_t compiled_tpu_programs() {
  using Programs = decltype(hasten_tpu_programs);
  static const auto programs = find_tpu_function<Programs>("hasten_tpu_programs");
  return is_open() && programs.function != nullptr ? programs.function() : 0;
}

bool tpus_can_communicate() { return machine_has_tpu() && !user_names_plugin(); }

at::Device tpu_device_of(const Worker& worker, TpuJob job) {
  open_tpu_once(worker, job);
  return tpu_device();
}

void check_tpu_index(std::int64_t index, std::int64_t count) {
  if (index >= 0 && index < count) return;
  throw UsageError("device.tpu-index",
                   {.what = "device tpu",
                    .got = str("index ", index),
                    .expected = count > 0 ? str("0 to ", count - 1)
                                          : "none, because the plugin has no devices"});
}

at::Device tpu_device(std::int64_t index) {
  const OpenedTpu& tpu = open_tpu_once({}, TpuJob::separate_chips);
  if (tpu.process != getpid()) {
    throw UsageError("device.tpu-forked",
                     {.what = "device tpu",
                      .got = str("forked process ", getpid()),
                      .expected = str("process ", tpu.process, ", which opened it"),
                      .hint = "use the TPU only inside the forked function"});
  }
  check_tpu_index(index, tpu.count);
  return at::Device(at::kPrivateUse1, static_cast<at::DeviceIndex>(index));
}

}  // namespace hasten
