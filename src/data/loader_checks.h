// What a loader refuses before it reads. Throws ConfigError "data.option", "data.share", UsageError
// "data.loaders-differ".
#pragma once

#include <string>

#include "hasten/data/loader_core.h"

namespace hasten::detail {

void check_options(const LoaderOptions& options, bool stream);
void check_divides(const LoaderOptions& options, const LoaderShare& share);
void check_carries(const BatchSource& source);
// Whether all processes describe it alike. A collective.
void check_same_loader(const std::string& description, const std::string& hint, const Group& group);

}  // namespace hasten::detail
