#include "device/loadable_module.h"

#include <dlfcn.h>

#include <string>

#include "base/library_folder.h"

namespace hasten {
namespace {

std::string last_error() {
  const char* const text = dlerror();
  return text == nullptr ? "unknown" : text;
}

}  // namespace

LoadedSymbol load_symbol(const char* library, const char* name) {
  void* const handle = dlopen((library_folder() / library).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return {.missing = last_error()};
  void* const address = dlsym(handle, name);
  if (address == nullptr) return {.missing = last_error()};
  return {.address = address};
}

}  // namespace hasten
