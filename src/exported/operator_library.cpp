#include "hasten/exported/operator_library.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <set>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

// Returns the namespaces of all operators of this process.
std::set<std::string> known_namespaces() {
  std::set<std::string> found;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames())
    if (const auto space = name.getNamespace()) found.emplace(*space);
  return found;
}

[[noreturn]] void fail_library(const std::filesystem::path& file, std::string got) {
  throw DataError("exported.library",
                  {.what = file.string() + ": the library of operators",
                   .got = std::move(got),
                   .expected = "a shared library with TORCH_LIBRARY(NAMESPACE, ...)",
                   .hint = "build it against the LibTorch that this program uses"});
}

void* open_library(const std::filesystem::path& file) {
  // dlopen would search the system folders for a name that is not an absolute path.
  const std::string path = std::filesystem::absolute(file).string();
  try {
    if (void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  } catch (const std::exception& error) {  // thrown by its registrations
    fail_library(file, error.what());
  }
  const char* const reason = dlerror();
  fail_library(file, reason == nullptr ? "no reason" : reason);
}

}  // namespace

std::vector<std::string> load_operator_library(const std::filesystem::path& file) {
  static std::mutex mutex;
  static std::map<void*, std::vector<std::string>> loaded;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored))
    throw IoError("io.not-found", {.what = file.string() + ": no such library"});
  const std::lock_guard lock(mutex);
  const std::set<std::string> before = known_namespaces();
  void* const library = open_library(file);
  if (const auto again = loaded.find(library); again != loaded.end()) return again->second;
  const std::set<std::string> after = known_namespaces();
  std::vector<std::string> added;
  std::set_difference(after.begin(), after.end(), before.begin(), before.end(),
                      std::back_inserter(added));
  if (added.empty()) fail_library(file, "no new namespace of operators");
  return loaded.emplace(library, std::move(added)).first->second;
}

}  // namespace hasten
