#include "hasten/data/sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

at::Generator generator_of(std::uint64_t seed, std::int64_t epoch) {
  return at::detail::createCPUGenerator(seed + static_cast<std::uint64_t>(epoch));
}

std::vector<std::int64_t> numbers_of(const at::Tensor& rows) {
  const auto* first = rows.const_data_ptr<std::int64_t>();
  return {first, first + rows.numel()};
}

at::Tensor permutation(std::int64_t rows, std::uint64_t seed, std::int64_t epoch) {
  return at::randperm(rows, generator_of(seed, epoch), at::TensorOptions().dtype(at::kLong));
}

[[noreturn]] void fail_order(std::string what, std::string got, std::string expected) {
  throw UsageError(
      "data.order",
      {.what = std::move(what), .got = std::move(got), .expected = std::move(expected)});
}

void require_one_per_row(const char* what, std::size_t count, std::int64_t rows) {
  if (static_cast<std::int64_t>(count) == rows) return;
  fail_order(what, std::to_string(count), str(rows, ", one for each row of the dataset"));
}

// Sorts each group of rows by length, and swaps the longest row of all to the front.
void group_by_length(std::vector<std::int64_t>& order, std::size_t group,
                     const std::vector<std::int64_t>& lengths) {
  const auto length = [&](std::int64_t row) { return lengths[static_cast<std::size_t>(row)]; };
  std::size_t longest = 0;
  for (std::size_t first = 0; first < order.size(); first += group) {
    const auto begin = order.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end =
        order.begin() + static_cast<std::ptrdiff_t>(std::min(first + group, order.size()));
    std::stable_sort(begin, end,
                     [&](std::int64_t a, std::int64_t b) { return length(a) > length(b); });
    if (length(order[first]) > length(order[longest])) longest = first;
  }
  if (!order.empty()) std::swap(order[0], order[longest]);
}

void check_weights(const WeightedRows& rows) {
  std::int64_t possible = 0;
  for (const double weight : rows.weights) {
    if (!std::isfinite(weight) || weight < 0)
      fail_order("a weight of a row", str(weight), "a finite number, not negative");
    possible += weight > 0 ? 1 : 0;
  }
  if (possible == 0) fail_order("the weights of the rows", "none above 0", "at least one above 0");
  if (rows.num_samples < 0) fail_order("num_samples", str(rows.num_samples), "at least 0");
  const auto samples =
      rows.num_samples > 0 ? rows.num_samples : static_cast<std::int64_t>(rows.weights.size());
  if (!rows.replacement && samples > possible) {
    fail_order("num_samples without replacement", std::to_string(samples),
               str("at most ", possible, ", the rows with a weight above 0"));
  }
}

}  // namespace

OrderFunction length_grouped_order(std::vector<std::int64_t> lengths, std::int64_t batch_size) {
  if (batch_size < 1) fail_order("batch_size", std::to_string(batch_size), "at least 1");
  return [lengths = std::move(lengths), batch_size](std::int64_t rows, std::uint64_t seed,
                                                    std::int64_t epoch) {
    require_one_per_row("lengths", lengths.size(), rows);
    std::vector<std::int64_t> order = numbers_of(permutation(rows, seed, epoch));
    const std::int64_t batches = std::clamp<std::int64_t>(rows / (batch_size * 4), 1, 50);
    group_by_length(order, static_cast<std::size_t>(batches * batch_size), lengths);
    return order;
  };
}

OrderFunction weighted_order(WeightedRows rows) {
  check_weights(rows);
  const at::Tensor weights = at::tensor(rows.weights, at::kDouble);
  return [weights, options = std::move(rows)](std::int64_t count, std::uint64_t seed,
                                              std::int64_t epoch) {
    require_one_per_row("weights", options.weights.size(), count);
    return numbers_of(at::multinomial(weights,
                                      options.num_samples > 0 ? options.num_samples : count,
                                      options.replacement, generator_of(seed, epoch)));
  };
}

EpochOrder::EpochOrder(std::int64_t rows, const OrderOptions& options, std::int64_t epoch)
    : size_(rows) {
  if (options.custom) {
    custom_ = options.custom(rows, options.seed, epoch);
    size_ = static_cast<std::int64_t>(custom_.size());
    for (const std::int64_t row : custom_) {
      if (row >= 0 && row < rows) continue;
      fail_order("the order of epoch " + std::to_string(epoch), str("row ", row),
                 str("rows from 0 to ", rows - 1));
    }
  } else if (options.shuffle) {
    random_ = permutation(rows, options.seed, epoch);
  }
}

std::span<const std::int64_t> EpochOrder::slice(std::int64_t first, std::int64_t count,
                                                std::vector<std::int64_t>& scratch) const {
  const auto from = static_cast<std::size_t>(first), n = static_cast<std::size_t>(count);
  if (!custom_.empty()) return std::span(custom_).subspan(from, n);
  if (random_.defined()) return {random_.const_data_ptr<std::int64_t>() + from, n};
  scratch.resize(n);
  std::iota(scratch.begin(), scratch.end(), first);
  return scratch;
}

}  // namespace hasten
