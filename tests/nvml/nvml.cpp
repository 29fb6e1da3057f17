// Replaces the functions of NVML that hasten calls. It has one GPU, whose memory use is the one
// that the documentation shows for a V100 after loading a model. The driver reserves 300 MiB.
struct Memory {
  unsigned long long total, free, used;
};
struct MemoryWithReserved {
  unsigned version;
  unsigned long long total, reserved, free, used;
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
  memory->used = (2631ull + 300) << 20;
  memory->free = memory->total - memory->used;
  return 0;
}
int nvmlDeviceGetMemoryInfo_v2(void*, MemoryWithReserved* memory) {
  if (memory->version != (sizeof(MemoryWithReserved) | 2U << 24)) return 25;  // the version differs
  memory->total = 16160ull << 20;
  memory->reserved = 300ull << 20;
  memory->used = 2631ull << 20;
  memory->free = memory->total - memory->used - memory->reserved;
  return 0;
}
}
