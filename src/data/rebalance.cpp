#include "hasten/data/rebalance.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

constexpr double kAttention = 0.001;  // the weight of the term that attention adds

double cost_of(std::int64_t rows, std::int64_t longest) {
  const auto n = static_cast<double>(rows), length = static_cast<double>(longest);
  return n * length + kAttention * n * length * length;
}

// Divides rows that are sorted by descending length into groups of consecutive rows. It moves one
// row after another from the most expensive group to the cheapest one.
class GroupBalancer {
 public:
  GroupBalancer(std::vector<std::int64_t> lengths, std::int64_t world, std::int64_t steps)
      : lengths_(std::move(lengths)), world_(static_cast<std::size_t>(world)) {
    const std::size_t groups = world_ * static_cast<std::size_t>(steps);
    for (std::size_t i = 0; i < groups; ++i)
      counts_.push_back(static_cast<std::int64_t>(lengths_.size() / groups) +
                        (i < lengths_.size() % groups ? 1 : 0));
    frozen_.assign(groups, false);
  }

  // Returns the number of rows of each group.
  std::vector<std::int64_t> balance() {
    const std::size_t groups = counts_.size();
    std::set<std::vector<std::int64_t>> seen;
    double best_spread = std::numeric_limits<double>::infinity();
    std::vector<std::int64_t> best = counts_;
    for (std::size_t i = 0; i < std::max(groups * 30, lengths_.size()); ++i) {
      if (!seen.insert(counts_).second) break;
      const std::vector<double> costs = costs_now();
      const std::vector<std::size_t> active = active_by_cost(costs);
      if (active.size() <= 1) break;
      const std::size_t cheapest = active.front(), costliest = costliest_of(active, costs);
      const double spread = costs[costliest] - costs[cheapest];
      if (spread < best_spread) {
        best_spread = spread;
        best = counts_;
      }
      if (spread == 0) break;
      if (counts_[costliest] > 1) {
        --counts_[costliest];
        ++counts_[cheapest];
      } else {
        freeze_slot_of(costliest, costs);
      }
    }
    return best;
  }

  std::vector<double> costs_of(const std::vector<std::int64_t>& counts) const {
    std::vector<double> costs;
    std::size_t first = 0;
    for (const std::int64_t count : counts) {
      costs.push_back(count > 0 ? cost_of(count, lengths_[first]) : 0);
      first += static_cast<std::size_t>(count);
    }
    return costs;
  }

 private:
  std::vector<double> costs_now() const { return costs_of(counts_); }

  // The groups that still change, the cheapest first.
  std::vector<std::size_t> active_by_cost(const std::vector<double>& costs) const {
    std::vector<std::size_t> active;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      if (!frozen_[i]) active.push_back(i);
    }
    std::stable_sort(active.begin(), active.end(),
                     [&](std::size_t a, std::size_t b) { return costs[a] < costs[b]; });
    return active;
  }

  // Returns the group with the highest cost; the first one if several have it.
  static std::size_t costliest_of(const std::vector<std::size_t>& by_cost,
                                  const std::vector<double>& costs) {
    std::size_t costliest = by_cost.back();
    for (const std::size_t group : by_cost) {
      if (costs[group] == costs[costliest]) costliest = std::min(costliest, group);
    }
    return costliest;
  }

  // A group of one row cannot become cheaper. The other groups of its micro-batch get rows until
  // they cost nearly as much. None of these groups changes afterwards.
  void freeze_slot_of(std::size_t pivot, const std::vector<double>& costs) {
    std::vector<std::size_t> ranking(counts_.size());
    std::iota(ranking.begin(), ranking.end(), 0);
    std::stable_sort(ranking.begin(), ranking.end(),
                     [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
    const auto rank = static_cast<std::size_t>(std::find(ranking.begin(), ranking.end(), pivot) -
                                               ranking.begin());
    const std::size_t first = rank / world_ * world_;
    std::set<std::size_t> slot;
    for (std::size_t i = first; i < std::min(first + world_, ranking.size()); ++i)
      slot.insert(ranking[i]);
    for (const std::size_t group : slot) {
      if (!frozen_[group] && group != pivot) fill(group, slot, costs[pivot]);
    }
    for (const std::size_t group : slot) frozen_[group] = true;
  }

  void fill(std::size_t group, const std::set<std::size_t>& slot, double most) {
    while (true) {
      const auto first = static_cast<std::size_t>(std::accumulate(
          counts_.begin(), counts_.begin() + static_cast<std::ptrdiff_t>(group), std::int64_t{0}));
      if (cost_of(counts_[group] + 1, lengths_[first]) > most) return;
      const std::vector<double> costs = costs_now();
      std::size_t donor = counts_.size();
      for (std::size_t i = 0; i < counts_.size(); ++i) {
        if (frozen_[i] || slot.contains(i) || counts_[i] <= 1) continue;
        if (donor == counts_.size() || costs[i] < costs[donor]) donor = i;
      }
      if (donor == counts_.size()) return;
      ++counts_[group];
      --counts_[donor];
    }
  }

  std::vector<std::int64_t> lengths_;
  std::size_t world_;
  std::vector<std::int64_t> counts_;
  std::vector<bool> frozen_;
};

}  // namespace

std::vector<std::vector<std::int64_t>> rebalanced_batches(std::span<const std::int64_t> rows,
                                                          std::span<const std::int64_t> lengths,
                                                          std::int64_t world, std::int64_t steps) {
  if (static_cast<std::int64_t>(rows.size()) < world * steps) {
    throw UsageError("data.order", {.what = "the rows of a step with rebalanced batches",
                                    .got = str(rows.size()),
                                    .expected = str(world * steps, ", one for each batch")});
  }
  const auto length = [&](std::int64_t row) { return lengths[static_cast<std::size_t>(row)]; };
  std::vector<std::int64_t> sorted(rows.begin(), rows.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](std::int64_t a, std::int64_t b) { return length(a) > length(b); });
  std::vector<std::int64_t> sorted_lengths;
  for (const std::int64_t row : sorted) sorted_lengths.push_back(length(row));
  GroupBalancer balancer(std::move(sorted_lengths), world, steps);
  const std::vector<std::int64_t> counts = balancer.balance();
  const std::vector<double> costs = balancer.costs_of(counts);

  std::vector<std::vector<std::int64_t>> groups;
  auto first = sorted.begin();
  for (const std::int64_t count : counts) {
    groups.emplace_back(first, first + count);
    first += count;
  }
  std::vector<std::size_t> ranking(groups.size());
  std::iota(ranking.begin(), ranking.end(), 0);
  std::stable_sort(ranking.begin(), ranking.end(),
                   [&](std::size_t a, std::size_t b) { return costs[a] > costs[b]; });
  std::vector<std::vector<std::int64_t>> batches;
  for (const std::size_t group : ranking) batches.push_back(std::move(groups[group]));
  return batches;
}

}  // namespace hasten
