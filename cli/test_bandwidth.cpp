// Measures the bandwidth of an all-reduce over the ranks of `hasten test`. No speed fails the
// check.
#include "base/seconds.h"
#include "test_checks.h"

#include <torch/torch.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace hasten::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Returns the median time of a call. All ranks make the same number of calls.
double median_seconds(const Group& group, std::int64_t bytes, int calls) {
  std::vector<at::Tensor> both = {at::ones({bytes / 4})};
  std::vector<double> seconds;
  group.barrier();
  for (int call = 0; call <= calls; ++call) {
    const auto began = Clock::now();
    group.native()->allreduce(both)->wait();
    if (call > 0) seconds.push_back(seconds_since(began));  // the first one warms up
    both[0].fill_(1);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

template <std::int64_t bytes, int calls>
Json all_reduce(RankContext& rank) {
  if (rank.require_group().size() == 1) throw CheckSkipped("there is one rank");
  return {{"seconds", median_seconds(rank.require_group(), bytes, calls)}};
}

// The bandwidths as nccl-tests defines them. The algorithm's bandwidth is bytes / time. The
// bandwidth of the bus, which is what each link carries, is 2 (n - 1) / n times as much.
template <std::int64_t bytes>
CheckOutcome evaluate_all_reduce(RankContext&, const std::vector<Json>& facts) {
  const double seconds = max_value(facts, "seconds"), size = static_cast<double>(facts.size());
  const double algorithm = static_cast<double>(bytes) / seconds / 1e9;
  const double bus = algorithm * 2 * (size - 1) / size;
  return {str(fixed(seconds * 1e6, 0), " µs, ", significant(algorithm, 3), " GB/s, bus ",
              significant(bus, 3), " GB/s"),
          {{"microseconds", seconds * 1e6}, {"algorithm_gb_s", algorithm}, {"bus_gb_s", bus}}};
}

constexpr std::int64_t kKilobyte = 1000, kMegabyte = 1000 * kKilobyte;

}  // namespace

std::vector<Check> checks_of_bandwidth() {
  return {
      {"all-reduce of 1 KB", all_reduce<kKilobyte, 100>, evaluate_all_reduce<kKilobyte>},
      {"all-reduce of 1 MB", all_reduce<kMegabyte, 20>, evaluate_all_reduce<kMegabyte>},
      {"all-reduce of 64 MB", all_reduce<64 * kMegabyte, 3>, evaluate_all_reduce<64 * kMegabyte>},
  };
}

}  // namespace hasten::cli
