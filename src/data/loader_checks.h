// Checks of a loader before it reads. They throw ConfigError "data.option" or "data.share", and
// UsageError "data.loaders-differ".
#pragma once

#include <string>

#include "hasten/data/loader_core.h"

namespace hasten::detail {

void check_options(const LoaderOptions& options, bool stream);
void check_lengths(const Rebalance& rebalance, std::int64_t rows);
void check_divisible(const LoaderOptions& options, const LoaderShare& share);
void check_packable(const BatchSource& source);
// Throws for a stream: its rows cannot be read once for each virtual rank.
void check_elastic(bool stream);
// A collective. Throws unless all processes describe the loader alike.
void check_same_loader(const std::string& description, const std::string& hint, const Group& group);

}  // namespace hasten::detail
