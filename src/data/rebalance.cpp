#include "hasten/data/detail/rebalance.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <unordered_set>

#include "hasten/base/detail/mix_key.h"
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
    std::unordered_set<std::uint64_t> seen;  // keys: the counts of all rounds take too much memory
    double best_spread = std::numeric_limits<double>::infinity();
    std::vector<std::int64_t> best = counts_;
    for (std::size_t i = 0; i < std::max(groups * 30, lengths_.size()); ++i) {
      if (!seen.insert(key_).second) break;
      const std::vector<double> costs = costs_now();
      const auto [active, cheapest, costliest] = active_groups(costs);
      if (active <= 1) break;
      const double spread = costs[costliest] - costs[cheapest];
      if (spread < best_spread) {
        best_spread = spread;
        best = counts_;
      }
      if (spread == 0) break;
      if (counts_[costliest] > 1) {
        move_row(costliest, cheapest);
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

  struct ActiveGroups {
    std::size_t number = 0, cheapest = 0, costliest = 0;
  };

  // Returns the number of groups that still change, and the cheapest and the most expensive one of
  // them; the first one if several have the same cost.
  ActiveGroups active_groups(const std::vector<double>& costs) const {
    ActiveGroups active;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      if (frozen_[i]) continue;
      if (active.number++ == 0) active.cheapest = active.costliest = i;
      if (costs[i] < costs[active.cheapest]) active.cheapest = i;
      if (costs[i] > costs[active.costliest]) active.costliest = i;
    }
    return active;
  }

  void move_row(std::size_t from, std::size_t to) {
    change_count(from, -1);
    change_count(to, 1);
  }

  void change_count(std::size_t group, std::int64_t by) {
    key_ -= key_of(group);
    counts_[group] += by;
    key_ += key_of(group);
  }

  // Returns a random number that depends only on the group and the number of its rows.
  std::uint64_t key_of(std::size_t group) const {
    return detail::mix_key(0, group, static_cast<std::uint64_t>(counts_[group]));
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

  void fill(std::size_t group, const std::set<std::size_t>& slot, double max_cost) {
    while (true) {
      const auto first = static_cast<std::size_t>(std::accumulate(
          counts_.begin(), counts_.begin() + static_cast<std::ptrdiff_t>(group), std::int64_t{0}));
      if (cost_of(counts_[group] + 1, lengths_[first]) > max_cost) return;
      const std::vector<double> costs = costs_now();
      std::size_t donor = counts_.size();
      for (std::size_t i = 0; i < counts_.size(); ++i) {
        if (frozen_[i] || slot.contains(i) || counts_[i] <= 1) continue;
        if (donor == counts_.size() || costs[i] < costs[donor]) donor = i;
      }
      if (donor == counts_.size()) return;
      move_row(donor, group);
    }
  }

  std::vector<std::int64_t> lengths_;
  std::size_t world_;
  std::vector<std::int64_t> counts_;
  std::uint64_t key_ = 0;  // identifies counts_; the sum of its groups' keys, from 0 at the start
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
