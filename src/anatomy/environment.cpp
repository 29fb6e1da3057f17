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

// Starts the requested dry run before main(), so that everything the program makes is dry. It lasts
// as long as the process. For a TPU it makes a dry device instead, which the program finds through
// its environment.
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
  } catch (const Error& error) {  // main() has not begun, so nobody can catch it
    std::fprintf(stderr, "hasten: error[%s]: %s\n", error.code().c_str(), error.what());
    _exit(error.exit_code());
  }
}
[[maybe_unused]] const DryRun* const from_the_start = start();

// Reports the findings once: when the requested steps are done, or when the program ends earlier.
class Teller : public StepObserver {
 public:
  explicit Teller(const char* what) : what_(what), output_(variable(kListenVariable)) {}

  void on_step() override {
    if (!finished()) return;
    tell();
    _exit(0);  // only these steps were requested
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
      std::fprintf(stderr, "hasten: wrote the %s to %s\n", what_, output_.c_str());
    }
    std::fflush(nullptr);
  }

 protected:
  static std::int64_t steps() {
    return std::max(1L, std::atol(variable(kListenStepsVariable).c_str()));
  }
  virtual bool finished() const = 0;
  // Takes the findings up to now, which the functions below show.
  virtual void look() = 0;
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

// Reports the account of a dry TPU, next to an earlier dry run's prediction for the CPU, if any.
class AccountTeller : public Teller {
 public:
  explicit AccountTeller(const DryTpu& dry)
      : Teller("TPU account"), dry_(dry), steps_(steps()), prediction_(prediction_beside()) {}

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

// The only Teller of the process, which reports on the program's first Accelerator; else null.
std::shared_ptr<Teller>& only_teller() {
  static auto& one = *new std::shared_ptr<Teller>;
  return one;
}

// A TPU program that does not compile throws in the middle of a step, often uncaught.
void tell_at_terminate() {
  static const std::terminate_handler before = std::set_terminate([] {
    only_teller()->tell();
    before();
  });
}

}  // namespace

void listen_if_asked(const std::shared_ptr<StepObservers>& observers) {
  DryTpu* const dry = DryTpu::active();
  if (dry) dry->listen_to(*observers);  // every Accelerator reports its phases
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
