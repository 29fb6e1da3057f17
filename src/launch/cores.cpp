#include "launch/cores.h"

#include <algorithm>
#include <map>

namespace hasten {
namespace {

using Cores = std::vector<const PhysicalCore*>;
using Shares = std::vector<std::vector<int>>;

std::map<int, Cores> cores_by_node(const Topology& topology) {
  std::map<int, Cores> nodes;
  for (const PhysicalCore& core : topology.cores) nodes[core.node].push_back(&core);
  return nodes;
}

// Gives adjacent cores to each share in `among`; shares differ by one core at most.
void divide(const Cores& cores, const std::vector<std::size_t>& among, Shares& out) {
  for (std::size_t i = 0; i < among.size(); ++i) {
    const std::size_t first = i * cores.size() / among.size(),
                      last = std::max(first + 1, (i + 1) * cores.size() / among.size());
    std::vector<int>& share = out[among[i]];
    for (std::size_t at = first; at < last; ++at)
      share.insert(share.end(), cores[at]->cpus.begin(), cores[at]->cpus.end());
    std::sort(share.begin(), share.end());
  }
}

// Returns the node of each share's GPU; empty if one is unknown or has no usable cores.
std::vector<int> nodes_by_gpu(const Topology& topology, const std::map<int, Cores>& nodes,
                              const std::vector<int>& gpus) {
  std::vector<int> found;
  for (const int gpu : gpus) {
    const bool known = gpu >= 0 && static_cast<std::size_t>(gpu) < topology.gpu_nodes.size();
    const int node = known ? topology.gpu_nodes[static_cast<std::size_t>(gpu)] : -1;
    if (nodes.count(node) == 0) return {};
    found.push_back(node);
  }
  return found;
}

// Lines up all cores, cuts them into equal shares, and returns the node in the middle of each
// share.
std::vector<int> nodes_by_size(const Topology& topology, std::size_t shares) {
  std::vector<int> nodes;
  for (std::size_t share = 0; share < shares; ++share)
    nodes.push_back(topology.cores[(2 * share + 1) * topology.cores.size() / (2 * shares)].node);
  return nodes;
}

Shares assign_whole_nodes(const std::map<int, Cores>& nodes, std::size_t shares) {
  Shares out(shares);
  std::size_t at = 0;
  for (const auto& [node, cores] : nodes) {
    std::vector<int>& share = out[at++ * shares / nodes.size()];
    for (const PhysicalCore* core : cores)
      share.insert(share.end(), core->cpus.begin(), core->cpus.end());
    std::sort(share.begin(), share.end());
  }
  return out;
}

}  // namespace

std::vector<std::vector<int>> partition_cores(const Topology& topology, std::size_t shares,
                                              const std::vector<int>& gpus) {
  if (topology.cores.empty()) return Shares(shares);
  const std::map<int, Cores> nodes = cores_by_node(topology);
  std::vector<int> node_of;
  if (gpus.size() == shares) node_of = nodes_by_gpu(topology, nodes, gpus);
  if (node_of.empty()) {
    if (shares < nodes.size()) return assign_whole_nodes(nodes, shares);
    node_of = nodes_by_size(topology, shares);
  }
  std::map<int, std::vector<std::size_t>> among;
  for (std::size_t share = 0; share < shares; ++share) among[node_of[share]].push_back(share);
  Shares out(shares);
  for (const auto& [node, members] : among) divide(nodes.at(node), members, out);
  return out;
}

std::int64_t threads_per_process(const Topology& topology, std::int64_t processes) {
  auto cores = static_cast<std::int64_t>(topology.cores.size());
  if (topology.quota > 0) cores = std::min(cores, static_cast<std::int64_t>(topology.quota));
  return std::max<std::int64_t>(1, cores / processes);
}

}  // namespace hasten
