// A stand-in for the functions of NVML that hasten calls. It has one GPU with the memory use of the
// documentation's V100 after loading a model.
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
