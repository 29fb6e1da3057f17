#include "data/loader_checks.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <exception>
#include <string>
#include <vector>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "process/consensus/comparison.h"

namespace hasten::detail {
namespace {

void check_range(const char* option, std::int64_t got, std::int64_t minimum, std::int64_t maximum) {
  if (got >= minimum && got <= maximum) return;
  throw ConfigError(
      "data.option",
      {.what = option, .got = std::to_string(got), .expected = str(minimum, " to ", maximum)});
}

}  // namespace

void check_options(const LoaderOptions& options, bool stream) {
  check_range("batch_size", options.batch_size, 1, std::int64_t{1} << 40);
  check_range("num_workers", options.num_workers, 0, 1024);
  check_range("prefetch_factor", options.prefetch_factor, 1, 65536);
  if (options.rebalance) check_range("rebalance.steps", options.rebalance->steps, 1, 1 << 20);
  if (stream && options.rebalance) {
    throw ConfigError("data.option",
                      {.what = "rebalance is set for a stream, whose lengths are not known",
                       .hint = "give the dataset size() and get(index)"});
  }
  if (options.shuffle && options.order) {
    throw ConfigError("data.option",
                      {.what = "shuffle and order are both set", .hint = "remove one of them"});
  }
  if (stream && (options.shuffle || options.order)) {
    throw ConfigError(
        "data.option",
        {.what = "shuffle or order is set for a stream, which has its own order",
         .hint = "shuffle inside the stream, or give the dataset size() and get(index)"});
  }
}

void check_lengths(const Rebalance& rebalance, std::int64_t rows) {
  if (static_cast<std::int64_t>(rebalance.lengths.size()) == rows) return;
  throw UsageError("data.order", {.what = "the lengths of rebalance",
                                  .got = str(rebalance.lengths.size()),
                                  .expected = str(rows, ", one for each row of the dataset")});
}

void check_divisible(const LoaderOptions& options, const LoaderSharding& sharding) {
  const std::int64_t world = sharding.group.size();
  if (!sharding.configuration.split_batches || options.batch_size % world == 0) return;
  throw ConfigError(
      "data.sharding",
      {.what = "split_batches",
       .got = str("batches of ", options.batch_size, " rows"),
       .expected = str("a multiple of ", world, ", the number of processes"),
       .hint =
           str("set batch_size = ", (options.batch_size + world - 1) / world * world,
               ", or split_batches = false, which gives each process batches of batch_size rows")});
}

void check_packable(const BatchSource& source) {
  if (source.is_packable()) return;
  throw ConfigError("data.sharding",
                    {.what = "batches of a type that cannot be sent to another process",
                     .expected = "tensors, strings and numbers, standard containers and plain "
                                 "structs of them, or a type with visit_parts",
                     .hint = "define visit_parts in the namespace of the type "
                             "(hasten/data/detail/pack.h), or set dispatch_batches = false"});
}

void check_elastic(bool stream) {
  if (!stream) return;
  throw ConfigError("data.sharding",
                    {.what = "a stream, with elastic_ranks",
                     .expected = "a dataset with size() and get(index)",
                     .hint = "leave out elastic_ranks, or give the dataset get(index)"});
}

void check_same_loader(const std::string& description, const std::string& hint,
                       const Group& group) {
  check_same_text(
      description, group,
      {.code = "data.loaders-differ", .what = "the loader passed to prepare()", .hint = hint});
}

void agree_on_step(BatchResult& own, const std::string& name, const Group& group) {
  const bool only_repeats = own.error && own.step_rows > 0;
  const double failed = own.error && !only_repeats ? 1 : 0, failed_repeats = only_repeats ? 1 : 0,
               rows = own.error ? 0 : static_cast<double>(own.info.real_rows);
  const at::Tensor sums = group.reduce(at::tensor({failed, failed_repeats, rows}, at::kDouble));
  const auto step_rows = static_cast<std::int64_t>(sums[2].item<double>());
  const bool needs_repeats = step_rows > 0 && sums[1].item<double>() > 0;
  if (sums[0].item<double>() == 0 && !needs_repeats) {
    own.step_rows = step_rows;
    if (step_rows == 0) own = {};
    return;
  }
  // If another rank has an error of its own, a rank that only cannot repeat rows is not the cause.
  const bool is_cause = own.error && !(only_repeats && sums[0].item<double>() > 0);
  const std::vector<std::string> of_ranks = group.gather_object(is_cause ? "error" : "");
  if (is_cause) return;
  const auto first = std::find(of_ranks.begin(), of_ranks.end(), "error") - of_ranks.begin();
  own = {.error = std::make_exception_ptr(
             DataError("data.streams-differ", {.what = "the parts of a stream, " + name,
                                               .got = str("an error on rank ", first),
                                               .expected = "rows, or the end of its part",
                                               .hint = "that process reports the error"}))};
}

void throw_uneven_shards() {
  throw ConfigError("data.sharding",
                    {.what = "processes that read their own parts of a stream",
                     .got = "even_batches = false",
                     .expected = "processes that end a pass together",
                     .hint = "leave out even_batches = false, or dispatch_batches = false"});
}

std::int64_t shard_count(const LoaderState& state, std::int64_t processes) {
  return state.rows == kUnknownShardRows ? processes : 0;
}

std::string shards_text(std::int64_t shards) {
  return shards > 0 ? str("a stream in ", shards, " parts, one for each process")
                    : "a stream that is not divided between processes";
}

bool is_inside_pass(const LoaderState& state) { return state.batch > 0 || state.rows > 0; }

void check_same_sharding(const LoaderState& saved, bool reads_shard) {
  if (!reads_shard || saved.rows <= 0) return;
  throw DataError(
      "data.state",
      {.what = str("the position to resume from, row ", saved.rows, " of epoch ", saved.epoch),
       .got = "a stream that is divided between the processes",
       .expected = shards_text(0) + ", as when the position was saved",
       .hint = "leave out dispatch_batches = false until the end of the epoch, or start "
               "the epoch again"});
}

void check_same_step(BatchResult& own, const std::string& name, const Group& group) {
  constexpr double kError = -1;
  const double rows = own.error ? kError : static_cast<double>(own.step_rows);
  const at::Tensor extremes = group.reduce(at::tensor({rows, -rows}, at::kDouble), Reduction::max);
  if (extremes[0].item<double>() == -extremes[1].item<double>()) return;
  const std::vector<std::string> of_ranks =
      group.gather_object(own.error            ? "an error"
                          : own.step_rows == 0 ? "the end of the stream"
                                               : str(own.step_rows, " rows"));
  if (own.error) return;
  std::vector<std::string> found;
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    // Many ranks may give the same answer, so each answer is shown once, with its first rank.
    if (std::find(of_ranks.begin(), of_ranks.begin() + static_cast<std::ptrdiff_t>(rank),
                  of_ranks[rank]) == of_ranks.begin() + static_cast<std::ptrdiff_t>(rank))
      found.push_back(str(of_ranks[rank], " on rank ", rank));
  }
  own = {.error = std::make_exception_ptr(DataError(
             "data.streams-differ",
             {.what = "a stream that every process reads, " + name,
              .got = join(found, ", "),
              .expected = "the same rows in every process",
              .hint = "give every process the same stream, or let rank 0 read for all: leave out "
                      "dispatch_batches = false"}))};
}

}  // namespace hasten::detail
