#include "launch/cores.h"

#include <sched.h>

#include <algorithm>

namespace hasten {

std::vector<int> cores_here() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  if (cores.empty()) cores.push_back(0);  // the system did not say
  return cores;
}

std::vector<std::vector<int>> shares_of_cores(std::size_t shares) {
  const std::vector<int> cores = cores_here();
  std::vector<std::vector<int>> out(shares);
  for (std::size_t share = 0; share < shares; ++share) {
    const std::size_t first = share * cores.size() / shares,
                      last = (share + 1) * cores.size() / shares;
    for (std::size_t i = first; i < std::max(last, first + 1); ++i) out[share].push_back(cores[i]);
  }
  return out;
}

}  // namespace hasten
