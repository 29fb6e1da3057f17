// Checks every collective of a group against what a rank of `hasten test` can compute by itself.
#include "test_checks.h"

#include <torch/torch.h>

#include <functional>
#include <span>

#include "base/count_text.h"

namespace hasten::cli {
namespace {

// A check reports its first mismatch at its end, so that no rank leaves while others are in a
// collective.

constexpr at::ScalarType kNumbers[] = {at::kFloat, at::kDouble, at::kLong, at::kHalf,
                                       at::kBFloat16};
constexpr at::ScalarType kAll[] = {at::kFloat, at::kDouble,   at::kLong,
                                   at::kHalf,  at::kBFloat16, at::kBool};

std::string name_of_type(at::ScalarType type) { return lower(at::toString(type)); }

// Returns the values of one rank: small whole numbers, so that their sums over many ranks are exact
// in every type.
at::Tensor values_of_rank(std::int64_t rank, at::ScalarType type) {
  return ((at::arange(12).view({3, 4}) + rank) % 3).to(type);
}

at::Tensor rows_of_rank(std::int64_t rank, at::ScalarType type) {
  return at::full({rank + 1, 2}, static_cast<double>(rank % 2 + 1)).to(type);
}

class TensorChecker {
 public:
  void expect(const std::string& what, const std::function<at::Tensor()>& got,
              const at::Tensor& expected, double tolerance = 0) {
    try {
      const at::Tensor tensor = got();
      const bool same = tolerance == 0
                            ? at::equal(tensor, expected)
                            : tensor.sizes() == expected.sizes() &&
                                  at::allclose(tensor.to(at::kDouble), expected.to(at::kDouble),
                                               tolerance, tolerance);
      if (!same) record(str(what, ": the numbers differ from those that every rank can compute"));
    } catch (const c10::Error& error) {
      record(str(what, ": ", error.what_without_backtrace()));
    } catch (const std::exception& error) {
      record(str(what, ": ", error.what()));
    }
  }
  Json end() const {
    if (!first_.empty()) throw CheckFailed(first_);
    return {};
  }

 private:
  void record(const std::string& text) {
    if (first_.empty()) first_ = text;
  }
  std::string first_;
};

double tolerance_of(at::ScalarType type, std::int64_t ranks) {
  if (type == at::kLong) return 0;
  const double step = type == at::kHalf ? 1e-3 : type == at::kBFloat16 ? 8e-3 : 1e-6;
  return step * static_cast<double>(ranks);
}

Json gather(RankContext& rank) {
  const Group& group = rank.require_group();
  TensorChecker checker;
  for (const auto type : kAll) {
    std::vector<at::Tensor> parts;
    for (std::int64_t each = 0; each < group.size(); ++each)
      parts.push_back(values_of_rank(each, type));
    checker.expect(
        name_of_type(type), [&] { return group.gather(values_of_rank(group.rank(), type)); },
        at::cat(parts));
  }
  return checker.end();
}

Json reduce(RankContext& rank) {
  const Group& group = rank.require_group();
  TensorChecker checker;
  for (const auto type : kNumbers) {
    at::Tensor sum = at::zeros({3, 4}, at::kDouble), most = sum;
    for (std::int64_t each = 0; each < group.size(); ++each) {
      sum = sum + values_of_rank(each, at::kDouble);
      most = at::maximum(most, values_of_rank(each, at::kDouble));
    }
    const double tolerance = tolerance_of(type, group.size());
    const at::Tensor own = values_of_rank(group.rank(), type);
    const std::string name = name_of_type(type);
    checker.expect(
        "sum, " + name, [&] { return group.reduce(own); }, sum.to(type), tolerance);
    checker.expect(
        "mean, " + name, [&] { return group.reduce(own, Reduction::mean); },
        sum / static_cast<double>(group.size()), std::max(tolerance, 1e-6));
    checker.expect(
        "max, " + name, [&] { return group.reduce(own, Reduction::max); }, most.to(type));
  }
  return checker.end();
}

Json broadcast(RankContext& rank) {
  const Group& group = rank.require_group();
  TensorChecker checker;
  for (const auto type : kAll) {
    for (std::int64_t from = 0; from < group.size(); ++from)
      checker.expect(
          str(name_of_type(type), " from rank ", from),
          [&] { return group.broadcast(values_of_rank(group.rank(), type), from); },
          values_of_rank(from, type));
  }
  return checker.end();
}

Json pad_across_processes(RankContext& rank) {
  const Group& group = rank.require_group();
  TensorChecker checker;
  for (const auto type : kAll) {
    const at::Tensor own = rows_of_rank(group.rank(), type);
    const at::Tensor filling = at::zeros({group.size() - own.size(0), 2}, own.options());
    checker.expect(
        name_of_type(type), [&] { return group.pad_across_processes(own); },
        at::cat({own, filling}));
    checker.expect(
        name_of_type(type) + ", padded at the beginning",
        [&] { return group.pad_across_processes(own, 0, 0, /*pad_first=*/true); },
        at::cat({filling, own}));
  }
  return checker.end();
}

// Checks that no rank leaves the barrier before all have arrived.
Json barrier(RankContext& rank) {
  const Group& group = rank.require_group();
  const std::string key = rank.keys + "before the barrier";
  rank.store.add(key, 1);
  group.barrier();
  expect_equal("ranks at the barrier when one has passed it", rank.store.add(key, 0), group.size());
  return {};
}

std::string types_text(std::span<const at::ScalarType> types) {
  std::vector<std::string> names;
  for (const auto type : types) names.push_back(name_of_type(type));
  return join(names, ", ");
}

CheckOutcome evaluate_all_types(RankContext&, const std::vector<Json>&) {
  return {types_text(kAll), {}};
}
CheckOutcome evaluate_reduce(RankContext&, const std::vector<Json>&) {
  return {"sum, mean, max of " + types_text(kNumbers), {}};
}
CheckOutcome evaluate_broadcast(RankContext&, const std::vector<Json>& facts) {
  return {str("from each of ", count_text(std::ssize(facts), "rank"), ": ", types_text(kAll)), {}};
}
CheckOutcome evaluate_barrier(RankContext&, const std::vector<Json>& facts) {
  return {str("no rank passes it before all ", facts.size(), " have arrived"), {}};
}

}  // namespace

std::vector<Check> checks_of_collectives() {
  return {
      {"gather", gather, evaluate_all_types},
      {"reduce", reduce, evaluate_reduce},
      {"broadcast", broadcast, evaluate_broadcast},
      {"pad_across_processes", pad_across_processes, evaluate_all_types},
      {"barrier", barrier, evaluate_barrier},
  };
}

}  // namespace hasten::cli
