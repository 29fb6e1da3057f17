#include "hasten/machine/gpus.h"

#include <map>

#include "base/did_you_mean.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "machine/host_links.h"

namespace hasten {
namespace {

constexpr std::int64_t gib(double value) { return static_cast<std::int64_t>(value * (1 << 30)); }
constexpr std::int64_t mib(std::int64_t value) { return value << 20; }

constexpr std::string_view kCuda = "cuda:";

}  // namespace

const std::vector<Gpu>& gpus() {
  static const std::vector<Gpu> all = {
      {"t4", "Tesla T4", 75, 40, 1024, gib(14.56), mib(135), 8.1e12, 0, 320e9, 65e12, 0},
      {"v100-16gb", "Tesla V100 16 GB", 70, 80, 2048, gib(15.77), mib(385), 15.7e12, 0, 900e9,
       125e12, 0},
      {"v100-32gb", "Tesla V100 32 GB", 70, 80, 2048, gib(31.74), mib(385), 15.7e12, 0, 900e9,
       125e12, 0},
      {"rtx3090", "GeForce RTX 3090", 86, 82, 1536, gib(23.57), mib(308), 35.6e12, 71e12, 936e9,
       71e12, 35.6e12},
      {"rtx4090", "GeForce RTX 4090", 89, 128, 1536, gib(23.52), mib(455), 82.6e12, 165.2e12,
       1008e9, 165.2e12, 82.6e12},
      {"rtx6000ada", "RTX 6000 Ada", 89, 142, 1536, gib(47.37), mib(448), 91.1e12, 364e12, 960e9,
       364e12, 182.1e12},
      {"a10", "A10", 86, 72, 1536, gib(21.99), mib(275), 31.2e12, 125e12, 600e9, 125e12, 62.5e12},
      {"a10g", "A10G", 86, 80, 1536, gib(21.99), mib(307), 35e12, 70e12, 600e9, 70e12, 35e12},
      {"l4", "L4", 89, 58, 1536, gib(22.03), mib(213), 30.3e12, 121e12, 300e9, 121e12, 60e12},
      {"l40s", "L40S", 89, 142, 1536, gib(44.39), mib(512), 91.6e12, 362e12, 864e9, 362e12, 183e12},
      {"a100-40gb", "A100 40 GB", 80, 108, 2048, gib(39.38), mib(504), 19.5e12, 312e12, 1555e9,
       312e12, 156e12},
      {"a100-80gb", "A100 80 GB", 80, 108, 2048, gib(79.14), mib(512), 19.5e12, 312e12, 2039e9,
       312e12, 156e12},
      // The context was measured with driver 580 (benchmarks/results/gpu).
      {"h100-80gb", "H100 80 GB", 90, 132, 2048, gib(79.18), mib(766), 66.9e12, 989.4e12, 3350e9,
       989.4e12, 494.7e12},
      {"h100-nvl", "H100 NVL", 90, 132, 2048, gib(93.09), mib(681), 60e12, 835.5e12, 3938e9,
       835.5e12, 417.7e12},
      // Measured with driver 580 and CUDA 13: NVML counted 1,382 MiB beyond the allocator's memory.
      // The driver uses 616 MiB of it, the difference between NVML's and CUDA's totals.
      {"h200", "H200", 90, 132, 2048, gib(139.8), mib(766), 66.9e12, 989.4e12, 4800e9, 989.4e12,
       494.7e12},
      {"gh200", "GH200 96 GB", 90, 132, 2048, gib(94.5), mib(700), 66.9e12, 989.4e12, 4000e9,
       989.4e12, 494.7e12},
      {"b200", "B200", 100, 148, 2048, gib(178.35), mib(714), 80e12, 2250e12, 8000e9, 2250e12,
       1125e12},
  };
  return all;
}

std::string gpus_text() {
  std::vector<std::vector<std::string>> rows;
  const auto tera = [](double flops) {
    return flops > 0 ? fixed(flops / 1e12, 1) + " TFLOP/s" : std::string("-");
  };
  for (const Gpu& gpu : gpus()) {
    rows.push_back({std::string(kCuda) + std::string(gpu.name), std::string(gpu.title),
                    fixed(gpu.compute_capability / 10.0, 1),
                    fixed(static_cast<double>(gpu.memory) / (1 << 30), 2) + " GiB",
                    str(gpu.context >> 20, " MiB"), tera(gpu.flops_per_second),
                    tera(gpu.tf32_flops_per_second), tera(gpu.bf16_flops_per_second),
                    tera(gpu.fp16_flops_per_second), fixed(gpu.bytes_per_second / 1e9, 0) + " GB/s",
                    fixed(host_link_bytes_per_second(gpu) / 1e9, 0) + " GB/s"});
  }
  return table({"device", "", "sm", "memory", "context", "float", "tf32", "bf16", "fp16",
                "bandwidth", "host link"},
               rows);
}

// Older drivers leave out "NVIDIA".
const Gpu* find_gpu_of_driver(std::string_view driver_name) {
  static const std::map<std::string_view, std::string_view> names = {
      {"Tesla T4", "t4"},
      {"Tesla V100-SXM2-16GB", "v100-16gb"},
      {"Tesla V100-SXM2-32GB", "v100-32gb"},
      {"Tesla V100-SXM3-32GB", "v100-32gb"},
      {"GeForce RTX 3090", "rtx3090"},
      {"GeForce RTX 4090", "rtx4090"},
      {"RTX 6000 Ada Generation", "rtx6000ada"},
      {"A10", "a10"},
      {"A10G", "a10g"},
      {"L4", "l4"},
      {"L40S", "l40s"},
      {"A100-SXM4-40GB", "a100-40gb"},
      {"A100-PCIE-40GB", "a100-40gb"},
      {"A100-SXM4-80GB", "a100-80gb"},
      {"H100 80GB HBM3", "h100-80gb"},
      {"H100 NVL", "h100-nvl"},
      {"H200", "h200"},
      {"GH200 480GB", "gh200"},
      {"B200", "b200"},
  };
  constexpr std::string_view kVendor = "NVIDIA ";
  if (starts_with(driver_name, kVendor)) driver_name.remove_prefix(kVendor.size());
  const auto found = names.find(driver_name);
  return found == names.end() ? nullptr : &find_gpu(str(kCuda, found->second));
}

const Gpu& find_gpu(std::string_view device) {
  const std::string_view name =
      starts_with(device, kCuda) ? device.substr(kCuda.size()) : std::string_view();
  std::vector<std::string> names, longer;
  for (const Gpu& gpu : gpus()) {
    if (gpu.name == name) return gpu;
    names.push_back(std::string(kCuda) + std::string(gpu.name));
    if (starts_with(names.back(), device)) longer.push_back(names.back());
  }
  if (longer.empty() || longer.size() == names.size()) {
    const auto near = nearest(device, names);
    longer.assign(near ? 1 : 0, near.value_or(""));
  }
  throw ConfigError("config.unknown-device", {.what = "--device",
                                              .got = "'" + std::string(device) + "'",
                                              .expected = "cpu, " + join(names, ", "),
                                              .hint = did_you_mean(longer)});
}

}  // namespace hasten
