#include "run_with_anatomy.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/child_process.h"
#include "base/library_folder.h"
#include "cannot_run.h"
#include "commands/predicted_device.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "launch/exec_arguments.h"

namespace hasten::cli {
namespace {

// Injects libhasten_preload.so (attach/attach.h) into the program and the processes that it starts.
// The library carries out the requests in each process that uses hasten.
void preload_attachment() {
  constexpr const char* kVariable = "LD_PRELOAD";
  const std::filesystem::path library =
      std::filesystem::absolute(library_folder() / "libhasten_preload.so");
  if (!std::filesystem::exists(library)) {
    throw IoError("io.not-found", {.what = "libhasten_preload.so is missing",
                                   .expected = library.string(),
                                   .hint = "build or install all of hasten"});
  }
  if (library.string().find_first_of(" :") != std::string::npos) {
    throw IoError("io.cannot-run",
                  {.what = kVariable,
                   .got = library.string(),
                   .expected = "a path without a space or a colon, which separate its libraries",
                   .hint = "install hasten in another folder"});
  }
  const char* const others = std::getenv(kVariable);
  const std::string rest = others == nullptr || *others == '\0' ? "" : str(":", others);
  setenv(kVariable, (library.string() + rest).c_str(), 1);
}

[[noreturn]] void exec_program(const ObserveOptions& options) {
  const std::vector<char*> arguments = exec_arguments(options.program);
  std::fflush(nullptr);
  execvp(arguments[0], arguments.data());
  throw_cannot_run(options.program[0], errno);
}

// Runs the program dry on the CPU. It writes its anatomy into `file`, which the report on the
// device shows next to its own figures. The output is hidden, because the second run prints the
// same.
void predict_into(const ObserveOptions& options, const std::string& file) {
  setenv(kObserveVariable, file.c_str(), 1);
  setenv(kDryRunVariable, "cpu", 1);
  const std::vector<char*> arguments = exec_arguments(options.program);
  ChildProcess child({}, [&] {
    const int null_device = open("/dev/null", O_WRONLY | O_CLOEXEC);
    dup2(null_device, STDOUT_FILENO);
    dup2(null_device, STDERR_FILENO);
    execvp(arguments[0], arguments.data());  // if it fails, the second run reports why
  });
  if (child.error() != 0) throw_cannot_run(options.program[0], child.error());
  child.reap();
}

// Returns the path at which the program finds the prediction's file. The path contains the number
// of an open file, because the file's name is removed. Empty if the first run has written no
// prediction.
std::string record_prediction(const ObserveOptions& options) {
  const TemporaryDirectory folder;
  const std::string file = folder.path() / "prediction.json";
  predict_into(options, file);
  const int number = open(file.c_str(), O_RDONLY);  // the program inherits it
  return number < 0 ? "" : "/proc/self/fd/" + std::to_string(number);
}

// Lets the program say why there is no report, if none of its processes makes an Accelerator.
// `hasten plan` finds that out itself.
void request_reason() {
  unsetenv(kReportMarkVariable);  // the program of another command may have started this one
  if (std::getenv(kPlanFolderVariable) != nullptr) return;
  const int file = memfd_create("hasten-report-mark", 0);  // the program inherits it
  if (file >= 0) setenv(kReportMarkVariable, str("/proc/", getpid(), "/fd/", file).c_str(), 1);
}

}  // namespace

void prepare_prediction(const std::string& device) {
  const PredictedDevice* const kind = predicted_device_of(device);
  if (kind == nullptr) return;
  const std::filesystem::path packages =
      std::filesystem::path(HASTEN_LIBTORCH_FOLDER).parent_path();
  for (const auto& [name, value] : kind->variables(packages))
    setenv(name.c_str(), value.c_str(), 1);
}

void run_with_anatomy(const ObserveOptions& options, bool dry) {
  preload_attachment();
  prepare_prediction(options.device);
  const PredictedDevice* const kind = predicted_device_of(options.device);
  if (kind != nullptr && kind->is_compared_with_cpu()) {
    setenv(kObserveStepsVariable, std::to_string(options.steps).c_str(), 1);
    setenv(kCpuPredictionVariable, record_prediction(options).c_str(), 1);
  }
  setenv(kObserveVariable, options.output.c_str(), 1);
  setenv(kObserveStepsVariable, std::to_string(options.steps).c_str(), 1);
  if (dry) {
    setenv(kDryRunVariable, options.device.c_str(), 1);
  } else {
    unsetenv(kDryRunVariable);
  }
  request_reason();
  exec_program(options);
}

}  // namespace hasten::cli
