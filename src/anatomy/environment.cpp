#include "anatomy/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

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

// Tells what was found when the steps are done, or the program ends before.
class Teller : public StepObserver {
 public:
  explicit Teller(const char* what) : what_(what), output_(variable(kListenVariable)) {}

  void on_step() override {
    if (!finished()) return;
    tell();
    _exit(0);  // the rest of the program is not what was asked for
  }

  void tell() {
    if (std::exchange(told_, true)) return;
    std::fflush(nullptr);
    look();
    if (output_ == "json") {
      std::fputs(json().c_str(), stdout);
    } else if (output_ == "text") {
      std::fputs(("\n" + text()).c_str(), stdout);
    } else {
      write(output_);
      std::fprintf(stderr, "hasten: the %s is in %s\n", what_, output_.c_str());
    }
    std::fflush(nullptr);
  }

 protected:
  static std::int64_t steps() {
    return std::max(1L, std::atol(variable(kListenStepsVariable).c_str()));
  }
  virtual bool finished() const = 0;
  virtual void look() = 0;  // at what there is by now, for the forms below
  virtual std::string text() const = 0;
  virtual std::string json() const = 0;
  virtual void write(const std::string& file) const = 0;

 private:
  const char* what_;
  std::string output_;
  bool told_ = false;
};

class AnatomyTeller : public Teller {
 public:
  explicit AnatomyTeller(const std::shared_ptr<StepObservers>& observers)
      : Teller("anatomy"), anatomy_({.steps = steps()}, observers) {}

 private:
  bool finished() const override { return anatomy_.finished(); }
  void look() override {
    report_ = anatomy_.report();
    add_roofs(report_);
  }
  std::string text() const override { return to_text(report_); }
  std::string json() const override { return to_json(report_); }
  void write(const std::string& file) const override { write_report(file, report_); }

  Anatomy anatomy_;
  Report report_;
};

// The account of a dry TPU, beside the anatomy of an earlier, dry run.
class AccountTeller : public Teller {
 public:
  explicit AccountTeller(const DryTpu& dry)
      : Teller("account"), dry_(dry), steps_(steps()), prediction_(prediction_beside()) {}

 private:
  static std::optional<TpuPrediction> prediction_beside() {
    const std::string file = variable(kListenBesideVariable);
    if (file.empty() || !std::filesystem::exists(file)) return std::nullopt;
    return read_prediction(read_file(file));
  }
  bool finished() const override { return dry_.steps() >= steps_; }
  void look() override { account_ = dry_.account(); }
  std::string text() const override { return to_text(account_, beside()); }
  std::string json() const override { return to_json(account_, beside()); }
  void write(const std::string& file) const override { write_account(file, account_, beside()); }
  const TpuPrediction* beside() const { return prediction_ ? &*prediction_ : nullptr; }

  const DryTpu& dry_;
  std::int64_t steps_;
  std::optional<TpuPrediction> prediction_;
  TpuAccount account_;
};

// One for a process: of the program's first Accelerator.
std::shared_ptr<Teller>& only_teller() {
  static auto& one = *new std::shared_ptr<Teller>;
  return one;
}

// A program that does not compile is an error in the middle of the step, often not caught.
void tell_at_terminate() {
  static const std::terminate_handler before = std::set_terminate([] {
    only_teller()->tell();
    before();
  });
}

}  // namespace

void listen_if_asked(const std::shared_ptr<StepObservers>& observers) {
  DryTpu* const dry = DryTpu::active();
  if (dry) dry->listen_to(*observers);  // the phases of every Accelerator
  if (only_teller() || variable(kListenVariable).empty()) return;
  if (dry) {
    only_teller() = std::make_shared<AccountTeller>(*dry);
    tell_at_terminate();
  } else {
    only_teller() = std::make_shared<AnatomyTeller>(observers);
  }
  observers->add(only_teller());
  std::atexit([] { only_teller()->tell(); });
}

}  // namespace hasten::anatomy
