#include "launch/topology.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/control_groups.h"
#include "base/first_line.h"
#include "base/parse_number.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

// Returns 3 for "node3" and "node".
std::optional<int> number_after(std::string_view word, std::string_view name) {
  return starts_with(word, name) ? parse_number<int>(word.substr(name.size())) : std::nullopt;
}

std::map<int, int> nodes_of_cpus(const fs::path& root) {
  std::map<int, int> nodes;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(root / "sys/devices/system/node", error)) {
    const auto node = number_after(entry.path().filename().string(), "node");
    if (!node) continue;
    for (const int cpu : parse_number_list(first_line(entry.path() / "cpulist")))
      nodes[cpu] = *node;
  }
  return nodes;
}

std::vector<PhysicalCore> cores_of(const fs::path& root, const std::vector<int>& usable_cpus) {
  const std::map<int, int> nodes = nodes_of_cpus(root);
  std::set<int> left(usable_cpus.begin(), usable_cpus.end());
  std::vector<PhysicalCore> cores;
  while (!left.empty()) {
    const int first = *left.begin();
    const auto node = nodes.find(first);
    PhysicalCore core{.cpus = {first}, .node = node == nodes.end() ? 0 : node->second};
    left.erase(first);
    const auto file =
        root / str("sys/devices/system/cpu/cpu", first, "/topology/thread_siblings_list");
    for (const int sibling : parse_number_list(first_line(file))) {
      if (left.erase(sibling) > 0) core.cpus.push_back(sibling);
    }
    cores.push_back(std::move(core));
  }
  std::stable_sort(cores.begin(), cores.end(),
                   [](const auto& a, const auto& b) { return a.node < b.node; });
  return cores;
}

std::string bus_location(const fs::path& information) {
  std::ifstream file(information);
  for (std::string line; std::getline(file, line);) {
    if (starts_with(line, "Bus Location:")) return lower(trim(std::string_view(line).substr(13)));
  }
  return "";
}

std::vector<int> nodes_of_gpus(const fs::path& root) {
  std::error_code error;
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(root / "proc/driver/nvidia/gpus", error))
    folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());  // by bus address, as the driver numbers them
  std::vector<int> nodes;
  for (const fs::path& folder : folders) {
    const std::string bus = bus_location(folder / "information");
    const auto file = root / "sys/bus/pci/devices" / bus / "numa_node";
    nodes.push_back(bus.empty() ? -1 : parse_number<int>(first_line(file)).value_or(-1));
  }
  return nodes;
}

// "200000 100000" is two CPUs; "max 100000" means no limit.
std::optional<double> quota_in(const fs::path& folder) {
  const auto words = split(first_line(folder / "cpu.max"), ' ');
  const auto quota = parse_number<int>(words[0]),
             period = words.size() == 2 ? parse_number<int>(words[1]) : std::nullopt;
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / *period;
}

// Returns the smallest quota of the control group and all groups above it; 0 means no limit.
double quota_of(const fs::path& root) {
  double minimum = 0;
  for (const fs::path& group : control_groups(root, "cpu")) {
    const auto quota = quota_in(group);
    if (quota && (minimum == 0 || *quota < minimum)) minimum = *quota;
  }
  return minimum;
}

}  // namespace

Topology topology_of(const fs::path& root, const std::vector<int>& usable_cpus) {
  return {.cores = cores_of(root, usable_cpus),
          .gpu_nodes = nodes_of_gpus(root),
          .quota = quota_of(root)};
}

std::vector<int> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  if (cpus.empty()) cpus.push_back(0);  // the system did not report any
  return cpus;
}

std::vector<int> parse_number_list(std::string_view text) {
  constexpr int kMaxCpus = 1 << 16;  // processors of one machine
  std::vector<int> numbers;
  for (const std::string& range : split(trim(text), ',')) {
    const std::size_t dash = range.find('-');
    const auto first = parse_number<int>(std::string_view(range).substr(0, dash));
    const auto last = dash == std::string::npos
                          ? first
                          : parse_number<int>(std::string_view(range).substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMaxCpus) break;
    for (int each = *first; each <= *last; ++each) numbers.push_back(each);
  }
  return numbers;
}

}  // namespace hasten
