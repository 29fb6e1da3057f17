#include "anatomy/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>

#include "hasten/anatomy/anatomy.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/anatomy/dry_tpu.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/config/listen_options.h"
#include "hasten/config/tpus.h"

namespace hasten::anatomy {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// Before main, so that what the program makes at its start is dry too. It lasts as long as the
// process. On a TPU the device is dry, and the program is told where it lies.
const DryRun* start() {
  const std::string device = variable(kDryRunVariable);
  if (device.empty()) return nullptr;
  if (device == "cpu") return new DryRun;
  try {
    if (starts_with(device, kTpuDevice)) {
      static_cast<void>(*new DryTpu(device.substr(kTpuDevice.size())));
      return nullptr;
    }
    return new DryRun(find_gpu(device));
  } catch (const Error& error) {  // there is nobody yet to catch it
    std::fprintf(stderr, "hasten: error[%s]: %s\n", error.code().c_str(), error.what());
    _exit(error.exit_code());
  }
}
[[maybe_unused]] const DryRun* const from_the_start = start();

// One for a process: the program's first Accelerator.
class Listener : public StepObserver {
 public:
  explicit Listener(const std::shared_ptr<StepObservers>& observers)
      : output_(variable(kListenVariable)),
        anatomy_({.steps = std::max(1L, std::atol(variable(kListenStepsVariable).c_str()))},
                 observers) {}

  void on_step() override {
    if (!anatomy_.finished()) return;
    tell();
    _exit(0);  // the rest of the program is not what was asked for
  }

  // Also where the program ends before its steps are done.
  void tell() {
    if (told_) return;
    told_ = true;
    std::fflush(nullptr);
    Report report = anatomy_.report();
    if (!report.dry) report.roofs = measure_roofs();
    if (output_ == "json" || output_ == "text") {
      std::fputs(output_ == "json" ? to_json(report).c_str() : ("\n" + to_text(report)).c_str(),
                 stdout);
    } else {
      write_report(output_, report);
      std::fprintf(stderr, "hasten: the anatomy is in %s\n", output_.c_str());
    }
    std::fflush(nullptr);
  }

 private:
  std::string output_;
  Anatomy anatomy_;
  bool told_ = false;
};

// The same for a dry TPU, whose account stands beside the anatomy of an earlier, dry run.
class TpuListener : public StepObserver {
 public:
  explicit TpuListener(const DryTpu& dry)
      : dry_(dry),
        steps_(std::max(1L, std::atol(variable(kListenStepsVariable).c_str()))),
        output_(variable(kListenVariable)),
        prediction_(prediction_beside()) {}

  void on_step() override {
    if (dry_.steps() < steps_) return;
    tell();
    _exit(0);  // the rest of the program is not what was asked for
  }

  void tell() {
    if (told_) return;
    told_ = true;
    std::fflush(nullptr);
    const TpuAccount account = dry_.account();
    const TpuPrediction* const prediction = prediction_ ? &*prediction_ : nullptr;
    const bool json = output_ == "json" || ends_with(output_, ".json");
    const std::string text = json ? to_json(account, prediction) : to_text(account, prediction);
    if (output_ == "json" || output_ == "text") {
      std::fputs(((json ? "" : "\n") + text).c_str(), stdout);
    } else {
      write_file_atomically(output_, text);
      std::fprintf(stderr, "hasten: the account is in %s\n", output_.c_str());
    }
    std::fflush(nullptr);
  }

 private:
  static std::optional<TpuPrediction> prediction_beside() {
    const std::string file = variable(kListenBesideVariable);
    if (file.empty() || !std::filesystem::exists(file)) return std::nullopt;
    const TpuPrediction prediction = read_prediction(read_file(file));
    std::filesystem::remove(file);
    return prediction;
  }
  const DryTpu& dry_;
  std::int64_t steps_;
  std::string output_;
  std::optional<TpuPrediction> prediction_;
  bool told_ = false;
};

std::shared_ptr<TpuListener>& only_tpu_listener() {
  static auto& one = *new std::shared_ptr<TpuListener>;
  return one;
}

// The phases of every Accelerator; the first one's steps end the program.
void listen_for_tpu(DryTpu& dry, StepObservers& observers) {
  dry.listen_to(observers);
  if (only_tpu_listener() || variable(kListenVariable).empty()) return;
  only_tpu_listener() = std::make_shared<TpuListener>(dry);
  observers.add(only_tpu_listener());
  std::atexit([] { only_tpu_listener()->tell(); });
  // A program that does not compile is an error in the middle of the step, often not caught.
  static const std::terminate_handler before = std::set_terminate([] {
    only_tpu_listener()->tell();
    before();
  });
}

std::shared_ptr<Listener>& only_listener() {
  static auto& one = *new std::shared_ptr<Listener>;
  return one;
}

}  // namespace

void listen_if_asked(const std::shared_ptr<StepObservers>& observers) {
  if (DryTpu* const dry = DryTpu::active()) return listen_for_tpu(*dry, *observers);
  if (only_listener() || variable(kListenVariable).empty()) return;
  only_listener() = std::make_shared<Listener>(observers);
  observers->add(only_listener());
  std::atexit([] { only_listener()->tell(); });
}

}  // namespace hasten::anatomy
