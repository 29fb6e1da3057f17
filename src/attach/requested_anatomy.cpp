// libhasten_attach.so: carries out what `hasten anatomy` and `hasten estimate -- PROGRAM` request
// from the program that they start (commands/observe_options.h). A request is a dry run that begins
// before main(), an anatomy of the first Accelerator's steps, or the estimate of a dry TPU. Then
// the process ends.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "attach/attach.h"
#include "base/environment_variable.h"
#include "commands/observe_options.h"
#include "hasten/anatomy/anatomy.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/tpu/anatomy/dry_tpu.h"
#include "tpu/machine/tpus.h"

namespace hasten::anatomy {
namespace {

// From now on, everything that the program creates is dry, until the process ends. For a TPU this
// opens a dry device instead, which the program finds through its environment.
void start_dry_run(const std::string& device) {
  if (device == "cpu") {
    static_cast<void>(*new DryRun);
  } else if (starts_with(device, kTpuDevice)) {
    static_cast<void>(*new DryTpu(device.substr(kTpuDevice.size())));
  } else {
    static_cast<void>(*new DryRun(find_gpu(device)));
  }
}

// Reports the findings once: when the requested steps are done, or when the program ends before
// that.
class ReportWriter : public StepObserver {
 public:
  explicit ReportWriter(const char* what)
      : what_(what), output_(environment_variable(kObserveVariable)) {}

  void on_step() override {
    if (!finished()) return;
    write();
    _exit(0);  // only these steps were requested
  }

  void write() {
    if (std::exchange(written_, true)) return;
    std::fflush(nullptr);
    collect();
    if (output_ == "json") {
      std::fputs(json().c_str(), stdout);
    } else if (output_ == "text") {
      std::fputs(("\n" + text()).c_str(), stdout);
    } else {
      write_file(output_);
      std::fprintf(stderr, "hasten: wrote the %s to %s\n", what_, output_.c_str());
    }
    std::fflush(nullptr);
  }

 protected:
  static std::int64_t steps() {
    return std::max(1L, std::atol(environment_variable(kObserveStepsVariable).c_str()));
  }
  virtual bool finished() const = 0;
  // Collects the findings up to now. The functions below show them.
  virtual void collect() = 0;
  virtual std::string text() const = 0;
  virtual std::string json() const = 0;
  virtual void write_file(const std::string& file) const = 0;

 private:
  const char* what_;
  std::string output_;
  bool written_ = false;
};

class AnatomyWriter : public ReportWriter {
 public:
  explicit AnatomyWriter(const std::shared_ptr<StepObservers>& observers)
      : ReportWriter("anatomy"), anatomy_({.steps = steps()}, observers) {}

 private:
  bool finished() const override { return anatomy_.finished(); }
  void collect() override {
    report_ = anatomy_.report();
    add_roofs(report_);
  }
  std::string text() const override { return to_text(report_); }
  std::string json() const override { return to_json(report_); }
  void write_file(const std::string& file) const override { write_report(file, report_); }

  Anatomy anatomy_;
  Report report_;
};

// Reports the estimate of a dry TPU, next to an earlier dry run's prediction for the CPU if there
// is one.
class TpuEstimateWriter : public ReportWriter {
 public:
  explicit TpuEstimateWriter(const DryTpu& dry)
      : ReportWriter("TPU estimate"),
        dry_(dry),
        steps_(steps()),
        prediction_(read_cpu_prediction()) {}

 private:
  static std::optional<TpuPrediction> read_cpu_prediction() {
    const std::string file = environment_variable(kCpuPredictionVariable);
    if (file.empty() || !std::filesystem::exists(file)) return std::nullopt;
    return read_prediction(read_file(file));
  }
  bool finished() const override { return dry_.steps() >= steps_; }
  void collect() override { estimate_ = dry_.estimate(); }
  std::string text() const override { return to_text(estimate_, cpu_prediction()); }
  std::string json() const override { return to_json(estimate_, cpu_prediction()); }
  void write_file(const std::string& file) const override {
    write_tpu_estimate(file, estimate_, cpu_prediction());
  }
  const TpuPrediction* cpu_prediction() const { return prediction_ ? &*prediction_ : nullptr; }

  const DryTpu& dry_;
  std::int64_t steps_;
  std::optional<TpuPrediction> prediction_;
  TpuEstimate estimate_;
};

// Returns the writer of the report on the program's first Accelerator. It is null until there is
// one.
std::shared_ptr<ReportWriter>& report_writer() {
  static auto& one = *new std::shared_ptr<ReportWriter>;
  return one;
}

// A TPU program that fails to compile throws in the middle of a step, often without a handler.
void write_at_terminate() {
  static const std::terminate_handler before = std::set_terminate([] {
    report_writer()->write();
    before();
  });
}

}  // namespace
}  // namespace hasten::anatomy

void hasten_begin_dry_run() {
  using namespace hasten;
  static bool begun = false;
  const std::string device = environment_variable(kDryRunVariable);
  if (std::exchange(begun, true) || device.empty()) return;
  try {
    anatomy::start_dry_run(device);
  } catch (const Error& error) {
    std::fprintf(stderr, "hasten: error[%s]: %s\n", error.code().c_str(), error.what());
    _exit(error.exit_code());
  }
}

void hasten_report_steps(const std::shared_ptr<hasten::StepObservers>& observers) {
  using namespace hasten;
  std::shared_ptr<anatomy::ReportWriter>& writer = anatomy::report_writer();
  if (writer || environment_variable(kObserveVariable).empty()) return;
  if (const DryTpu* const dry = DryTpu::active()) {
    writer = std::make_shared<anatomy::TpuEstimateWriter>(*dry);
    anatomy::write_at_terminate();
  } else {
    writer = std::make_shared<anatomy::AnatomyWriter>(observers);
  }
  observers->add(writer);
  std::atexit([] { anatomy::report_writer()->write(); });
}
