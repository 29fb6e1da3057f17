#include "machine/host_links.h"

namespace hasten {

double host_link_bytes_per_second(const Gpu& gpu) {
  constexpr double kPcie3 = 15.75e9, kPcie4 = 31.5e9, kPcie5 = 63e9, kNvlinkC2C = 450e9;
  if (gpu.name == "gh200") return kNvlinkC2C;
  // Turing and Volta have the third generation, Ampere and Ada the fourth, Hopper and Blackwell the
  // fifth.
  if (gpu.compute_capability >= 90) return kPcie5;
  return gpu.compute_capability >= 80 ? kPcie4 : kPcie3;
}

}  // namespace hasten
