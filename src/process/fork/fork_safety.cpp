#include "process/fork/fork_safety.h"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <string_view>

namespace hasten {
namespace {

std::atomic<std::int64_t>& counter(ForkHazard kind) {
  static std::atomic<std::int64_t> accelerators = 0, groups = 0;
  return kind == ForkHazard::accelerator ? accelerators : groups;
}

constexpr int kPauseHard = 2;  // omp_pause_hard of OpenMP 5.0

// LibTorch brings its own OpenMP library in addition to the system's, so each is paused separately.
int pause_one(dl_phdr_info* library, std::size_t, void*) {
  const std::string_view name = library->dlpi_name;
  if (name.find("omp") == std::string_view::npos) return 0;
  void* const handle = dlopen(library->dlpi_name, RTLD_NOW | RTLD_NOLOAD);
  if (handle == nullptr) return 0;
  if (void* const pause = dlsym(handle, "omp_pause_resource_all"))
    reinterpret_cast<int (*)(int)>(pause)(kPauseHard);
  dlclose(handle);
  return 0;
}

}  // namespace

std::int64_t count_of(ForkHazard kind) { return counter(kind); }

ScopedForkHazard::ScopedForkHazard(ForkHazard kind) : kind_(kind) { ++counter(kind_); }
ScopedForkHazard::~ScopedForkHazard() { --counter(kind_); }

void pause_openmp() { dl_iterate_phdr(pause_one, nullptr); }

}  // namespace hasten
