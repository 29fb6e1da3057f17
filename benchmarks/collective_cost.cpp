// Measures what the watchdog and the check of calls add to a collective. It runs an all-reduce in
// turn in three groups of the same processes: without a watchdog, with a watchdog, and with a
// watchdog and the check. Rank 0 prints one JSON line with the medians and the lower quartiles.
// Other programs on the machine affect the quartiles less.
//
//   $ hasten launch -n 2 collective_cost --bytes 1048576 --calls 500
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <map>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "hasten/process/group.h"

namespace {

using Clock = std::chrono::steady_clock;
using namespace hasten;

struct Kind {
  const char* name;
  Group group;
  std::vector<double> microseconds;

  // Returns a quantile of the times: 0.25 gives the lower quartile, 0.5 the median.
  double below(double share) {
    std::sort(microseconds.begin(), microseconds.end());
    return microseconds[static_cast<std::size_t>(share * static_cast<double>(microseconds.size()))];
  }
};

double one_call(const Group& group, std::vector<at::Tensor>& data) {
  const auto began = Clock::now();
  group.native()->allreduce(data)->wait();
  return std::chrono::duration<double, std::micro>(Clock::now() - began).count();
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> o = {{"--bytes", "1048576"}, {"--calls", "500"}};
  for (int i = 1; i + 1 < argc; i += 2) o[argv[i]] = argv[i + 1];
  at::set_num_threads(1);
  const Worker worker = this_worker();
  Kind kinds[] = {{"plain", Group::form(worker, {.watchdog = false}), {}},
                  {"watched", Group::form(worker), {}},
                  {"checked", Group::form(worker, {.debug = true}), {}}};
  std::vector<at::Tensor> data = {at::ones({std::stoll(o["--bytes"]) / 4})};
  const std::int64_t calls = std::stoll(o["--calls"]);
  for (std::int64_t call = 0; call < calls; ++call) {
    // Each kind runs first equally often.
    for (std::size_t turn = 0; turn < std::size(kinds); ++turn) {
      Kind& kind = kinds[(turn + static_cast<std::size_t>(call)) % std::size(kinds)];
      one_call(kind.group, data);  // synchronizes the ranks and fills the caches
      kind.microseconds.push_back(one_call(kind.group, data));
    }
  }
  if (worker.rank != 0) return 0;
  const auto ratio = [&](Kind& kind, double share) {
    return kind.below(share) / kinds[0].below(share);
  };
  std::printf(
      "{\"bytes\": %s, \"plain_us\": %.2f, \"watched\": %.4f, \"checked\": %.4f, "
      "\"watched_quartile\": %.4f, \"checked_quartile\": %.4f}\n",
      o["--bytes"].c_str(), kinds[0].below(0.5), ratio(kinds[1], 0.5), ratio(kinds[2], 0.5),
      ratio(kinds[1], 0.25), ratio(kinds[2], 0.25));
}
