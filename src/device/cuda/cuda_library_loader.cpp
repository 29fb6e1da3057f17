#include "device/cuda/cuda_library_loader.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <typeinfo>

#include "device/cuda/simulated_gpu.h"
#include "hasten/base/log.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

std::atomic<bool> was_loaded = false;

// Finds libtorch_cpu.so by the address of one of its functions. A program's own reference to the
// function may have another address.
fs::path folder_of_libtorch() {
  const void* const function = dlsym(RTLD_DEFAULT, "_ZN2at6detail12getCUDAHooksEv");
  Dl_info found{};
  if (function == nullptr || dladdr(function, &found) == 0 || found.dli_fname == nullptr) return {};
  return fs::path(found.dli_fname).parent_path();
}

bool is_loaded(const fs::path& file) {
  return dlopen(file.filename().c_str(), RTLD_NOW | RTLD_NOLOAD) != nullptr;
}

// Changes the hooks that LibTorch caches for a machine without CUDA to the type of the CUDA
// library. Neither type has members, so the object consists of a pointer to its virtual functions.
void replace_cached_hooks() {
  auto& cached = const_cast<at::CUDAHooksInterface&>(at::detail::getCUDAHooks());
  if (typeid(cached) != typeid(at::CUDAHooksInterface)) return;
  const std::unique_ptr<at::CUDAHooksInterface> of_library =
      at::CUDAHooksRegistry()->Create("CUDAHooks", at::CUDAHooksArgs{});
  static_assert(sizeof(at::CUDAHooksInterface) == sizeof(void*));
  if (of_library == nullptr) return;
  std::memcpy(static_cast<void*>(&cached), static_cast<const void*>(of_library.get()),
              sizeof(at::CUDAHooksInterface));
}

}  // namespace

std::string load_cuda_library(const CudaLibrary& library) {
  std::error_code ignored;
  if (!fs::exists(library.driver, ignored) && !fs::exists(library.other_driver, ignored)) return "";
  const fs::path file =
      library.file.empty() ? folder_of_libtorch() / "libtorch_cuda.so" : library.file;
  if (is_loaded(file) || !fs::exists(file, ignored)) return "";
  // Its kernels register themselves, and other libraries (NCCL's module) use its symbols.
  if (dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    const char* const reason = dlerror();
    return reason == nullptr ? "unknown" : reason;
  }
  replace_cached_hooks();
  was_loaded = true;
  return "";
}

bool is_cuda_library_loaded() { return was_loaded; }

void load_cuda_library() {
  if (is_gpu_simulated()) return;
  static std::once_flag once;
  std::call_once(once, [] {
    const std::string reason = load_cuda_library(CudaLibrary{});
    if (reason.empty()) return;
    log_line("hasten: LibTorch's CUDA library does not load, so this process uses the CPU: " +
             reason);
  });
}

}  // namespace hasten
