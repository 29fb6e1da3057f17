#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>

#include "attach/attach.h"
#include "commands/observe_options.h"

namespace {

constexpr int kExitCode = 4;  // the same as for an IoError

// Returns the path of libhasten.so, or null in a process that has not loaded it.
const char* path_of_hasten() {
  const char* path = nullptr;
  dl_iterate_phdr(
      [](dl_phdr_info* library, std::size_t, void* found) {
        constexpr char kName[] = "/libhasten.so";
        const char* const name = strrchr(library->dlpi_name, '/');
        if (name == nullptr || strncmp(name, kName, strlen(kName)) != 0) return 0;
        *static_cast<const char**>(found) = library->dlpi_name;
        return 1;
      },
      &path);
  return path;
}

// Loads libhasten_attach.so from the folder of `file`.
void* load_from_folder_of(const char* file) {
  const char* const slash = strrchr(file, '/');
  if (slash == nullptr) return nullptr;
  char path[PATH_MAX];
  const int length =
      snprintf(path, sizeof path, "%.*s/libhasten_attach.so", static_cast<int>(slash - file), file);
  if (length < 0 || length >= static_cast<int>(sizeof path)) return nullptr;
  return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

// Loads the libhasten_attach.so that was built with the program's libhasten.so, or else the one of
// the command that started the program.
void* load_attach_library() {
  const char* const hasten = path_of_hasten();
  void* library = hasten == nullptr ? nullptr : load_from_folder_of(hasten);
  Dl_info own{};
  if (library == nullptr && dladdr(reinterpret_cast<const void*>(&load_from_folder_of), &own) != 0)
    library = load_from_folder_of(own.dli_fname);
  return library;
}

// Returns a function of libhasten_attach.so. The first call loads the library.
template <class Function>
Function* function_of_attach_library(const char* name) {
  static std::atomic<void*> library = nullptr;
  if (library == nullptr) library = load_attach_library();
  void* const function = library == nullptr ? nullptr : dlsym(library, name);
  if (function != nullptr) return reinterpret_cast<Function*>(function);
  const char* const reason = dlerror();
  dprintf(STDERR_FILENO,
          "hasten: error[io.not-found]: libhasten_attach.so: got %s. Hint: build or install all of "
          "hasten\n",
          reason == nullptr ? "none" : reason);
  _exit(kExitCode);
}

void begin_dry_run() {
  function_of_attach_library<decltype(hasten_begin_dry_run)>("hasten_begin_dry_run")();
}

// The file that gets a byte when a process makes an Accelerator (commands/observe_options.h), and a
// copy of the standard error, which some programs close before they end. Both are set only in the
// process that runs the program itself.
struct ReportMark {
  int file = -1, errors = -1;
  dev_t device = 0;
  ino_t number = 0;
};
constinit ReportMark report_mark;

void find_report_mark() {
  const char* const path = getenv(hasten::kReportMarkVariable);
  int process = 0, file = -1;
  if (path == nullptr || sscanf(path, "/proc/%d/fd/%d", &process, &file) != 2) return;
  struct stat status {};
  if (process != getpid() || fstat(file, &status) != 0) return;
  constexpr int kFirstNumber = 100;  // programs expect small numbers to be free
  report_mark = {.file = file,
                 .errors = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, kFirstNumber),
                 .device = status.st_dev,
                 .number = status.st_ino};
}

// Runs after the constructors of the libraries that the program links, and before the constructors
// and main() of the program.
[[gnu::constructor]] void begin() {
  find_report_mark();
  if (path_of_hasten() != nullptr) begin_dry_run();
}

// Says why there is no report. A fork of the process has another number.
[[gnu::destructor]] void end() {
  struct stat status {};
  if (report_mark.file < 0 || fstat(report_mark.file, &status) != 0) return;
  const bool is_mark = status.st_dev == report_mark.device && status.st_ino == report_mark.number;
  const char* const path = getenv(hasten::kReportMarkVariable);
  int process = 0;
  const bool is_own =
      path != nullptr && sscanf(path, "/proc/%d/", &process) == 1 && process == getpid();
  if (!is_mark || !is_own || status.st_size > 0) return;
  dprintf(
      report_mark.errors,
      "hasten: there is no report: the program %s, and no program that it started made an "
      "Accelerator\n",
      path_of_hasten() == nullptr ? "does not use hasten (libhasten.so)" : "made no Accelerator");
}

// Notes that this process makes the report.
void mark_report() {
  const char* const path = getenv(hasten::kReportMarkVariable);
  const int file = path == nullptr ? -1 : open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file < 0) return;
  [[maybe_unused]] const ssize_t written = write(file, "r", 1);
  close(file);
}

}  // namespace

// If a program loads libhasten.so later, with dlopen(), its dry run begins here.
void hasten_on_accelerator_begin() { begin_dry_run(); }

void hasten_on_accelerator_constructed(const std::shared_ptr<hasten::StepObservers>& observers) {
  mark_report();
  function_of_attach_library<decltype(hasten_report_steps)>("hasten_report_steps")(observers);
}

void hasten_on_trainer_begin(hasten::TrainingArguments& arguments) {
  function_of_attach_library<decltype(hasten_change_arguments)>("hasten_change_arguments")(
      arguments);
}
