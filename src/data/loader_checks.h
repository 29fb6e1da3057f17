// Checks of a loader before it reads. They throw ConfigError "data.option" or "data.share",
// UsageError "data.loaders-differ", and DataError "data.state".
#pragma once

#include <string>

#include "data/batch_producer.h"
#include "hasten/data/loader_options.h"

namespace hasten::detail {

void check_options(const LoaderOptions& options, bool stream);
void check_lengths(const Rebalance& rebalance, std::int64_t rows);
void check_divisible(const LoaderOptions& options, const LoaderShare& share);
void check_packable(const BatchSource& source);
// Throws for a stream: its rows cannot be read once for each virtual rank.
void check_elastic(bool stream);
// A collective. Throws unless all processes describe the loader alike.
void check_same_loader(const std::string& description, const std::string& hint, const Group& group);
// Replaces the batch by DataError "data.streams-differ" in every process, except in those that have
// an error of their own, unless all have read as many rows of the step. A collective.
void check_same_step(BatchResult& own, const std::string& name, const Group& group);
// Sets the rows of a step, of which each process has read those of its own part of a stream; if no
// process has any, the batch becomes the end. If a process has an error, all get one. A collective.
void agree_on_step(BatchResult& own, const std::string& name, const Group& group);
[[noreturn]] void throw_uneven_parts();
// LoaderState::rows of a loader of which each process reads its own part of a stream: only the
// number of batches is known of a position in parts.
inline constexpr std::int64_t kUnknownRowsOfParts = -1;

// The parts in which a stream is read, one by each process; 0 if no process reads a part.
std::int64_t parts_of(const LoaderState& state, std::int64_t processes);
// Returns "a stream in 3 parts, one for each process", or "rows of which no process has a part" for
// 0.
std::string parts_text(std::int64_t parts);
// True if a position lies inside a pass.
bool is_inside_pass(const LoaderState& state);
// Throws if the position lies inside a pass over whole data, and each process reads a part now.
void check_reads_alike(const LoaderState& saved, bool reads_part);

}  // namespace hasten::detail
