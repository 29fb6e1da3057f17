#include "anatomy/environment.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "hasten/anatomy/anatomy.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/base/error.h"
#include "hasten/config/listen_options.h"

namespace hasten::anatomy {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// Before main, so that what the program makes at its start is dry too. It lasts as long as the
// process.
const DryRun* start() {
  const std::string device = variable(kDryRunVariable);
  if (device.empty()) return nullptr;
  if (device == "cpu") return new DryRun;
  try {
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

std::shared_ptr<Listener>& only_listener() {
  static auto& one = *new std::shared_ptr<Listener>;
  return one;
}

}  // namespace

void listen_if_asked(const std::shared_ptr<StepObservers>& observers) {
  if (only_listener() || variable(kListenVariable).empty()) return;
  only_listener() = std::make_shared<Listener>(observers);
  observers->add(only_listener());
  std::atexit([] { only_listener()->tell(); });
}

}  // namespace hasten::anatomy
