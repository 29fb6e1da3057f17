// File: anatomy/comparison_text.h (internal)
// The texts in which comparisons of steps and plans show memory, time and batches.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "hasten/anatomy/detail/step_comparison.h"

namespace hasten::anatomy {

// Returns three digits without an exponent: "1.41", "3,641".
std::string three_digits(double value);
// Returns "812 ms" or "11.3 s", or "-" if the time is not known.
std::string step_duration(double seconds);
// Returns " within 2.15 GB, of which the program itself uses 123 MB".
std::string limit_text(std::int64_t memory, std::int64_t process);
// Returns "fits" or "does not fit".
std::string fit_text(std::int64_t bytes, std::int64_t memory);
// Returns "batches of 8 rows, 4 in a step".
std::string batches_text(std::int64_t rows, std::int64_t accumulation);

nlohmann::ordered_json json_of(const StepComparison& comparison);

}  // namespace hasten::anatomy
