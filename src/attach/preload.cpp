#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>

#include "attach/attach.h"

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

// Runs after the constructors of the libraries that the program links, and before the constructors
// and main() of the program.
[[gnu::constructor]] void begin() {
  if (path_of_hasten() != nullptr) begin_dry_run();
}

}  // namespace

// If a program loads libhasten.so later, with dlopen(), its dry run begins here.
void hasten_on_accelerator_begin() { begin_dry_run(); }

void hasten_on_accelerator_constructed(const std::shared_ptr<hasten::StepObservers>& observers) {
  function_of_attach_library<decltype(hasten_report_steps)>("hasten_report_steps")(observers);
}

void hasten_on_trainer_begin(hasten::TrainingArguments& arguments) {
  function_of_attach_library<decltype(hasten_change_arguments)>("hasten_change_arguments")(
      arguments);
}
