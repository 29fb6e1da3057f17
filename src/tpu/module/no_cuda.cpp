// The stub of libtorch_cuda.so for a machine without a GPU. cuda_names.py makes its other symbols.
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
