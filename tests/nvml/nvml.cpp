// NVML's entry points that hasten asks, for a machine without a GPU: one GPU, as the
// documentation's V100 was with a context and a model on it.
struct Memory {
  unsigned long long total, free, used;
};

extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  static int gpu;
  *device = &gpu;
  return index == 0 ? 0 : 6;  // NVML_ERROR_NOT_FOUND
}
int nvmlDeviceGetMemoryInfo(void*, Memory* memory) {
  memory->total = 16160ull << 20;
  memory->used = 2631ull << 20;
  memory->free = memory->total - memory->used;
  return 0;
}
}
