#include "data/loader_checks.h"

#include <string>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "process/consensus/comparison.h"

namespace hasten::detail {
namespace {

void check_range(const char* option, std::int64_t got, std::int64_t least, std::int64_t most) {
  if (got >= least && got <= most) return;
  throw ConfigError(
      "data.option",
      {.what = option, .got = std::to_string(got), .expected = str(least, " to ", most)});
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

void check_divisible(const LoaderOptions& options, const LoaderShare& share) {
  const std::int64_t world = share.group.size();
  if (!share.configuration.split_batches || options.batch_size % world == 0) return;
  throw ConfigError(
      "data.share",
      {.what = "split_batches",
       .got = str("batches of ", options.batch_size, " rows"),
       .expected = str("a multiple of ", world, ", the number of processes"),
       .hint =
           str("set batch_size = ", (options.batch_size + world - 1) / world * world,
               ", or split_batches = false, which gives each process batches of batch_size rows")});
}

void check_packable(const BatchSource& source) {
  if (source.is_packable()) return;
  throw ConfigError("data.share",
                    {.what = "batches of a type that cannot be sent to another process",
                     .expected = "tensors, strings and numbers, standard containers and plain "
                                 "structs of them, or a type with visit_parts",
                     .hint = "define visit_parts in the namespace of the type "
                             "(hasten/data/pack.h), or set dispatch_batches = false"});
}

void check_elastic(bool stream) {
  if (!stream) return;
  throw ConfigError("data.share",
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

}  // namespace hasten::detail
