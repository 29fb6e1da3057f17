#include "hasten/data/detail/interleaving.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/data/context.h"

namespace hasten::detail {
namespace {

void check_interleaving(std::size_t sources, const InterleaveOptions& options) {
  const std::vector<double>& all = options.probabilities;
  if (all.empty()) return;
  const auto fail = [](std::string got, std::string expected) {
    throw UsageError("data.option", {.what = "interleave_datasets: probabilities",
                                     .got = std::move(got),
                                     .expected = std::move(expected)});
  };
  if (all.size() != sources) fail(str(all.size()), str(sources, ", one for each dataset"));
  for (const double each : all) {
    if (!(each >= 0 && each <= 1)) fail(str(each), "numbers from 0 to 1");
    if (each == 0 && options.stopping_strategy != StoppingStrategy::first_exhausted)
      fail("0 for a dataset that must be exhausted", "numbers above 0");
  }
  const double sum = std::accumulate(all.begin(), all.end(), 0.0);
  if (std::abs(sum - 1) > 1e-6) fail("a sum of " + str(sum), "a sum of 1");
}

// Returns a row of each dataset in turn, `rounds` times. Shorter datasets begin again.
std::vector<std::int64_t> full_rounds(const std::vector<std::int64_t>& sizes, std::int64_t rounds) {
  std::vector<std::int64_t> rows;
  for (std::int64_t round = 0; round < rounds; ++round) {
    std::int64_t first = 0;
    for (const std::int64_t size : sizes) {
      rows.push_back(first + round % size);
      first += size;
    }
  }
  return rows;
}

}  // namespace

SourceChooser::SourceChooser(std::size_t sources, const InterleaveOptions& options)
    : options_(options), exhausted_(sources) {
  check_interleaving(sources, options);
  restart(0);
}

void SourceChooser::restart(std::int64_t epoch) {
  std::fill(exhausted_.begin(), exhausted_.end(), false);
  next_source_ = 0;
  random_ = RowRandom(mix_key(options_.seed, static_cast<std::uint64_t>(epoch), 0));
}

bool SourceChooser::done() const {
  const auto is_exhausted = [](bool exhausted) { return exhausted; };
  return options_.stopping_strategy == StoppingStrategy::first_exhausted
             ? std::any_of(exhausted_.begin(), exhausted_.end(), is_exhausted)
             : std::all_of(exhausted_.begin(), exhausted_.end(), is_exhausted);
}

std::size_t SourceChooser::next() {
  const bool skips =
      options_.stopping_strategy == StoppingStrategy::all_exhausted_without_replacement;
  for (;;) {
    std::size_t source = next_source_;
    if (options_.probabilities.empty()) {
      next_source_ = (next_source_ + 1) % exhausted_.size();
    } else {
      // If rounding leaves a remainder, the last dataset that can be drawn is chosen.
      double left = random_.uniform();
      for (std::size_t i = 0; i < exhausted_.size(); ++i) {
        if (options_.probabilities[i] <= 0) continue;
        source = i;
        left -= options_.probabilities[i];
        if (left < 0) break;
      }
    }
    if (!skips || !exhausted_[source]) return source;
  }
}

std::vector<std::int64_t> interleaved_rows(const std::vector<std::int64_t>& sizes,
                                           const InterleaveOptions& options) {
  SourceChooser chooser(sizes.size(), options);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 0) continue;
    throw DataError("data.empty",
                    {.what = str("interleave_datasets: dataset ", i, " of ", sizes.size()),
                     .got = "no rows",
                     .expected = "at least one row"});
  }
  const auto [shortest, longest] = std::minmax_element(sizes.begin(), sizes.end());
  if (options.probabilities.empty()) {
    if (options.stopping_strategy == StoppingStrategy::first_exhausted)
      return full_rounds(sizes, *shortest);
    if (options.stopping_strategy == StoppingStrategy::all_exhausted)
      return full_rounds(sizes, *longest);
  }
  std::vector<std::int64_t> rows, firsts(sizes.size()), read(sizes.size());
  std::exclusive_scan(sizes.begin(), sizes.end(), firsts.begin(), std::int64_t{0});
  while (!chooser.done()) {
    const std::size_t source = chooser.next();
    rows.push_back(firsts[source] + read[source]);
    if (++read[source] < sizes[source]) continue;
    chooser.exhaust(source);
    read[source] = 0;
  }
  return rows;
}

}  // namespace hasten::detail
