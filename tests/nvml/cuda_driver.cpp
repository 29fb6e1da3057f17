// A library that replaces NVIDIA's driver. It has two GPUs.
namespace {
bool is_initialized = false;
constexpr int kSuccess = 0, kNotInitialized = 3;  // values of CUresult
}  // namespace

extern "C" {

int cuInit(unsigned) {
  is_initialized = true;
  return kSuccess;
}

int cuDeviceGetCount(int* count) {
  if (!is_initialized) return kNotInitialized;
  *count = 2;
  return kSuccess;
}

}  // extern "C"
