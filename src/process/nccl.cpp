#include "process/nccl.h"

#include <dlfcn.h>

#include <filesystem>

namespace hasten {
namespace {

using Make = c10d::Backend*(const NcclSettings&);

struct Module {
  Make* make = nullptr;
  std::string missing;
};

std::string last_error() {
  const char* const text = dlerror();
  return text == nullptr ? "unknown" : text;
}

// Beside the library that this function is in.
std::string module_path() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&nccl_backend), &info) == 0) return {};
  return (std::filesystem::path(info.dli_fname).parent_path() / "libhasten_nccl.so").string();
}

// Never unloaded: what it makes lives as long as the process may.
Module load() {
  void* const library = dlopen(module_path().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {.missing = last_error()};
  auto* const make = reinterpret_cast<Make*>(dlsym(library, "hasten_nccl_backend"));
  if (make == nullptr) return {.missing = last_error()};
  return {.make = make};
}

const Module& module() {
  static const Module once = load();
  return once;
}

}  // namespace

std::string why_no_nccl() { return module().missing; }

c10::intrusive_ptr<c10d::Backend> nccl_backend(const NcclSettings& settings) {
  TORCH_CHECK(module().make != nullptr, "NCCL: ", module().missing);
  return c10::intrusive_ptr<c10d::Backend>::reclaim(module().make(settings));
}

}  // namespace hasten
