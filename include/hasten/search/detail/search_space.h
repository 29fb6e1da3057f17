// File: hasten/search/detail/search_space.h
// The parameters that a hyper-parameter search varies, and the values that each trial gets.
//
//   SearchSpace space;
//   space.log_uniform("learning_rate", 1e-5, 1e-3)
//       .integer("num_train_epochs", 1, 4)
//       .choice("per_device_train_batch_size", {8, 16, 32});
//   const TrialParameters random = space.random(/*seed=*/42, /*trial=*/7);
//
// The random values of a trial depend only on the seed, the trial's number and the position of the
// parameter: not on other trials, nor on the order in which trials run. Continuous values are
// rounded to at least six significant digits, so that they are short to write and do not depend on
// the mathematical library.
//
// Throws ConfigError "search.space" for a range or a list that is not usable, and for a name that
// is given twice. Thread rule: a value; reading it from several threads is safe.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/options/detail/names.h"
#include "hasten/options/detail/resolved_value.h"

namespace hasten {

enum class DimensionKind {
  uniform,      // Any number from low to high, both included, or low + a multiple of step.
  log_uniform,  // Any number; its logarithm is uniform.
  integer,      // low + a multiple of step.
  log_integer,  // An integer; its logarithm is uniform.
  choice,       // One of the values.
};
template <>
struct Names<DimensionKind> {
  static constexpr std::string_view text[] = {"uniform", "log_uniform", "int", "log_int", "choice"};
};

// One parameter of a space.
struct SearchDimension {
  std::string name = {};
  DimensionKind kind = DimensionKind::choice;
  double low = 0, high = 0;
  double step = 0;  // For uniform: 0 means continuous. For integer at least 1.
  std::vector<config::Value> choices = {};  // Booleans, integers, numbers and texts.
  std::string place = {};                   // File and line, for messages; empty for C++.
};

// The values of a trial, in the order of the space.
using TrialParameters = std::vector<std::pair<std::string, config::Value>>;

class HASTEN_API SearchSpace {
 public:
  SearchSpace& uniform(std::string name, double low, double high, double step = 0);
  SearchSpace& log_uniform(std::string name, double low, double high);
  SearchSpace& integer(std::string name, std::int64_t low, std::int64_t high,
                       std::int64_t step = 1);
  SearchSpace& log_integer(std::string name, std::int64_t low, std::int64_t high);
  SearchSpace& choice(std::string name, std::vector<config::Value> values);
  SearchSpace& add(SearchDimension dimension);

  const std::vector<SearchDimension>& dimensions() const { return dimensions_; }

  // The values of a trial in a random search.
  TrialParameters random(std::uint64_t seed, std::int64_t trial) const;
  // The values of a trial in a grid search, where the last parameter changes fastest. `trial` is
  // below grid_size().
  TrialParameters grid(std::int64_t trial) const;
  // The number of combinations. Throws ConfigError "search.space" if a parameter has no list of
  // values (log_uniform, log_integer, uniform without a step), or for more than a million.
  std::int64_t grid_size() const;

 private:
  std::vector<SearchDimension> dimensions_;
};

// Formats the dimension as it is written in a space file, such as {log_uniform: [1e-05, 0.001]}.
HASTEN_API std::string to_text(const SearchDimension& dimension);

// Reads a space from a YAML or JSON file: a map from names to one of {uniform: [LOW, HIGH]},
// {log_uniform: [LOW, HIGH]}, {int: [LOW, HIGH]}, {log_int: [LOW, HIGH]} and {choice: [VALUE,
// ...]}, where uniform and int may also have `step`. Choices are texts as they are written. Throws
// ConfigError "search.space" and "config.*" with the line and the key, and IoError
// "io.cannot-read".
HASTEN_API SearchSpace read_search_space(const std::string& path);

}  // namespace hasten
