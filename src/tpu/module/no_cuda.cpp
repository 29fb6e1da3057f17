// The stand-in for libtorch_cuda.so on a machine without a GPU. Its other names come from
// cuda_names.py.
#include <cstdio>
#include <cstdlib>

extern "C" [[noreturn]] void hasten_no_cuda(const char* name) {
  std::fprintf(stderr,
               "hasten: LibTorch called the CUDA function %s in a TPU process, which has no CUDA\n",
               name);
  std::abort();
}

// libtorch_python sets this while it is loaded.
namespace c10d {
using gil_checker_t = bool (*)();
gil_checker_t& get_gil_checker() {
  static gil_checker_t checker = nullptr;
  return checker;
}
}  // namespace c10d
