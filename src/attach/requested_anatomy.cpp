// libhasten_attach.so: carries out what `hasten anatomy` and `hasten estimate -- PROGRAM` request
// from the program that they start (commands/observe_options.h). A request is a dry run that begins
// before main(), an anatomy of the first Accelerator's steps, or the estimate of a dry TPU. Then
// the process ends.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <utility>

#include "attach/attach.h"
#include "attach/report_writer.h"
#include "base/environment_variable.h"
#include "commands/observe_options.h"
#include "hasten/anatomy/anatomy.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/base/error.h"
#include "tpu/attach/tpu_estimate_writer.h"

namespace hasten::anatomy {
namespace {

// From now on, everything that the program creates is dry, until the process ends.
void start_dry_run(const std::string& device) {
  if (start_dry_tpu(device)) return;
  if (device == "cpu") {
    static_cast<void>(*new DryRun);
  } else {
    static_cast<void>(*new DryRun(find_gpu(device)));
  }
}

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

// Returns the writer of the report on the program's first Accelerator. It is null until there is
// one.
std::shared_ptr<ReportWriter>& report_writer() {
  static auto& one = *new std::shared_ptr<ReportWriter>;
  return one;
}

// Also writes the report if the program ends with an exception that it does not catch.
void write_at_terminate() {
  static const std::terminate_handler before = std::set_terminate([] {
    report_writer()->write();
    before();
  });
}

// Ends the process, whose program did not make the request and cannot handle the error.
[[noreturn]] void end_process(const Error& error) {
  std::fprintf(stderr, "hasten: error[%s]: %s\n", error.code().c_str(), error.what());
  _exit(error.exit_code());
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
    anatomy::end_process(error);
  }
}

void hasten_report_steps(const std::shared_ptr<hasten::StepObservers>& observers) {
  using namespace hasten;
  std::shared_ptr<anatomy::ReportWriter>& writer = anatomy::report_writer();
  if (writer || environment_variable(kObserveVariable).empty()) return;
  try {
    writer = anatomy::make_tpu_estimate_writer();
    if (writer == nullptr) writer = std::make_shared<anatomy::AnatomyWriter>(observers);
  } catch (const Error& error) {
    anatomy::end_process(error);
  }
  if (writer->explains_exceptions()) anatomy::write_at_terminate();
  observers->add(writer);
  std::atexit([] { anatomy::report_writer()->write(); });
}
