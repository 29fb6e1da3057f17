#include "process/backend/loadable_module.h"

#include <dlfcn.h>

#include <filesystem>

namespace hasten {
namespace {

std::string last_error() {
  const char* const text = dlerror();
  return text == nullptr ? "unknown" : text;
}

// Returns the path of a library in the folder of the library that contains this function.
std::string path_of(const char* library) {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&load_symbol), &info) == 0) return {};
  return (std::filesystem::path(info.dli_fname).parent_path() / library).string();
}

}  // namespace

LoadedSymbol load_symbol(const char* library, const char* name) {
  void* const handle = dlopen(path_of(library).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return {.missing = last_error()};
  void* const address = dlsym(handle, name);
  if (address == nullptr) return {.missing = last_error()};
  return {.address = address};
}

}  // namespace hasten
