// File: data/loader_checks.h (internal)
// Checks of a loader before it reads. They throw ConfigError "data.option" or "data.sharding",
// UsageError "data.loaders-differ", and DataError "data.state".
#pragma once

#include <string>

#include "data/batch_producer.h"
#include "hasten/data/detail/loader_options.h"

namespace hasten::detail {

void check_options(const LoaderOptions& options, bool stream);
void check_lengths(const Rebalance& rebalance, std::int64_t rows);
void check_divisible(const LoaderOptions& options, const LoaderSharding& sharding);
void check_packable(const BatchSource& source);
// Throws for a stream: its rows cannot be read once for each virtual rank.
void check_elastic(bool stream);
// A collective. Throws unless the descriptions of all processes are the same.
void check_same_loader(const std::string& description, const std::string& hint, const Group& group);
// Checks that all processes have read the same number of rows of the step. Otherwise replaces the
// batch by DataError "data.streams-differ" in every process that has no error of its own. A
// collective.
void check_same_step(BatchResult& own, const std::string& name, const Group& group);
// For a step in which each process reads its own shard of a stream: sets the step's rows to the sum
// over all processes. If no process has any rows, the batch becomes the end, also in processes that
// could not repeat rows. If a process has another error, all processes get one. A collective.
void agree_on_step(BatchResult& own, const std::string& name, const Group& group);
[[noreturn]] void throw_uneven_shards();
// The value of LoaderState::rows if each process reads its own shard of a stream: only the number
// of batches is known for such a position.
inline constexpr std::int64_t kUnknownShardRows = -1;

// Returns the number of shards of a stream, one for each process; 0 if no process reads a shard.
std::int64_t shard_count(const LoaderState& state, std::int64_t processes);
// Returns, for example, "a stream in 3 parts, one for each process". For 0, returns a text which
// says that no process has a shard of its own.
std::string shards_text(std::int64_t shards);
// True if a position lies inside a pass.
bool is_inside_pass(const LoaderState& state);
// Throws if the position lies inside a pass over whole data, and each process reads a shard now.
void check_same_sharding(const LoaderState& saved, bool reads_shard);

}  // namespace hasten::detail
