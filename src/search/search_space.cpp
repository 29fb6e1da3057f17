#include "hasten/search/detail/search_space.h"

#include <algorithm>
#include <cmath>

#include "base/parse_number.h"
#include "hasten/base/detail/mix_key.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

constexpr double kMaxExactInteger = 0x1.0p53;  // a double can represent every integer up to it
constexpr std::int64_t kMaxCombinations = 1'000'000;

bool has_range(DimensionKind kind) { return kind != DimensionKind::choice; }
bool is_integer(DimensionKind kind) {
  return kind == DimensionKind::integer || kind == DimensionKind::log_integer;
}
bool is_logarithmic(DimensionKind kind) {
  return kind == DimensionKind::log_uniform || kind == DimensionKind::log_integer;
}

std::string name_in_messages(const SearchDimension& dimension) {
  return (dimension.place.empty() ? "" : dimension.place + ": ") + dimension.name;
}

[[noreturn]] void throw_dimension(const SearchDimension& dimension, const std::string& expected,
                                  const std::string& hint = "") {
  throw ConfigError("search.space", {.what = name_in_messages(dimension),
                                     .got = to_text(dimension),
                                     .expected = expected,
                                     .hint = hint});
}

bool is_scalar(const config::Value& value) {
  return !std::holds_alternative<std::monostate>(value) &&
         !std::holds_alternative<std::vector<std::string>>(value) &&
         !std::holds_alternative<Kwargs>(value);
}

void check_range(const SearchDimension& dimension) {
  const auto [low, high, step] = std::tie(dimension.low, dimension.high, dimension.step);
  if (!std::isfinite(low) || !std::isfinite(high) || !(low < high))
    throw_dimension(dimension, "two finite numbers, the lower one first");
  if (is_logarithmic(dimension.kind) && low <= 0)
    throw_dimension(dimension, "numbers above 0, because they have logarithms");
  if (!std::isfinite(step) || step < 0 || step > high - low)
    throw_dimension(dimension, "a step above 0 and at most the length of the range");
  if (!is_integer(dimension.kind)) return;
  for (const double number : {low, high, step}) {
    if (number != std::floor(number) || std::fabs(number) > kMaxExactInteger)
      throw_dimension(dimension, "integers of at most 2^53");
  }
}

// Rounds to six significant digits, or to more if the range or the step is small.
double rounded(double value, const SearchDimension& dimension) {
  const double largest = std::max(std::fabs(dimension.low), std::fabs(dimension.high));
  const double smallest = dimension.step > 0 ? dimension.step : dimension.high - dimension.low;
  const double width = std::log10(smallest / largest);
  const int digits = std::clamp(6 - static_cast<int>(std::ceil(width)), 6, 17);
  const double near = parse_number<double>(significant(value, digits)).value_or(value);
  return std::clamp(near, dimension.low, dimension.high);
}

// The number of values of a range with a step. The small addend admits a last value that rounding
// has moved beyond the end.
std::int64_t count_of_steps(const SearchDimension& dimension) {
  const double steps = (dimension.high - dimension.low) / dimension.step;
  return static_cast<std::int64_t>(std::min(std::floor(steps + 1e-9), 0x1.0p62)) + 1;
}

bool is_discrete(const SearchDimension& dimension) {
  return dimension.kind == DimensionKind::choice ||
         (dimension.step > 0 && !is_logarithmic(dimension.kind));
}

std::int64_t count_of_values(const SearchDimension& dimension) {
  return dimension.kind == DimensionKind::choice
             ? static_cast<std::int64_t>(dimension.choices.size())
             : count_of_steps(dimension);
}

config::Value number_value(double number, DimensionKind kind) {
  if (is_integer(kind)) return static_cast<std::int64_t>(std::llround(number));
  return number;
}

// Returns the value at an index of the list of values.
config::Value discrete_value(const SearchDimension& dimension, std::int64_t index) {
  if (dimension.kind == DimensionKind::choice)
    return dimension.choices[static_cast<std::size_t>(index)];
  const double number = dimension.low + static_cast<double>(index) * dimension.step;
  if (is_integer(dimension.kind)) return number_value(number, dimension.kind);
  return rounded(number, dimension);
}

// `random` is uniform over all 64-bit numbers.
config::Value random_value(const SearchDimension& dimension, std::uint64_t random) {
  if (is_discrete(dimension)) {
    const auto count = static_cast<std::uint64_t>(count_of_values(dimension));
    return discrete_value(dimension, static_cast<std::int64_t>(random % count));
  }
  const double uniform = static_cast<double>(random >> 11) * 0x1.0p-53;
  if (dimension.kind == DimensionKind::uniform)
    return rounded(dimension.low + uniform * (dimension.high - dimension.low), dimension);
  // Each integer covers a range of half a unit on both sides.
  const double margin = is_integer(dimension.kind) ? 0.5 : 0;
  const double low = std::log(dimension.low - margin), high = std::log(dimension.high + margin);
  const double value = rounded(std::exp(low + uniform * (high - low)), dimension);
  return number_value(value, dimension.kind);
}

}  // namespace

std::string to_text(const SearchDimension& dimension) {
  std::vector<std::string> values;
  for (const config::Value& choice : dimension.choices) values.push_back(config::to_text(choice));
  // A double is shown as 1e+05, which is not a whole number in a file.
  const auto bound = [&](double value) {
    return is_integer(dimension.kind) ? str(static_cast<std::int64_t>(value)) : str(value);
  };
  if (has_range(dimension.kind)) values = {bound(dimension.low), bound(dimension.high)};
  const bool shows_step =
      dimension.step != 0 && !(is_integer(dimension.kind) && dimension.step == 1);
  return str("{", name_of(dimension.kind), ": [", join(values, ", "), "]",
             shows_step ? ", step: " + bound(dimension.step) : "", "}");
}

SearchSpace& SearchSpace::uniform(std::string name, double low, double high, double step) {
  return add({.name = std::move(name),
              .kind = DimensionKind::uniform,
              .low = low,
              .high = high,
              .step = step});
}

SearchSpace& SearchSpace::log_uniform(std::string name, double low, double high) {
  return add(
      {.name = std::move(name), .kind = DimensionKind::log_uniform, .low = low, .high = high});
}

SearchSpace& SearchSpace::integer(std::string name, std::int64_t low, std::int64_t high,
                                  std::int64_t step) {
  return add({.name = std::move(name),
              .kind = DimensionKind::integer,
              .low = static_cast<double>(low),
              .high = static_cast<double>(high),
              .step = static_cast<double>(step)});
}

SearchSpace& SearchSpace::log_integer(std::string name, std::int64_t low, std::int64_t high) {
  return add({.name = std::move(name),
              .kind = DimensionKind::log_integer,
              .low = static_cast<double>(low),
              .high = static_cast<double>(high)});
}

SearchSpace& SearchSpace::choice(std::string name, std::vector<config::Value> values) {
  return add(
      {.name = std::move(name), .kind = DimensionKind::choice, .choices = std::move(values)});
}

SearchSpace& SearchSpace::add(SearchDimension dimension) {
  if (dimension.name.empty())
    throw ConfigError("search.space", {.what = "a parameter without a name"});
  if (dimension.kind == DimensionKind::integer && dimension.step == 0)
    throw_dimension(dimension, "a step of at least 1");
  if (is_logarithmic(dimension.kind) && dimension.step != 0)
    throw_dimension(dimension, "no step", "only uniform and int have steps");
  if (has_range(dimension.kind)) {
    check_range(dimension);
  } else if (dimension.choices.empty()) {
    throw_dimension(dimension, "at least one value");
  } else if (!std::all_of(dimension.choices.begin(), dimension.choices.end(), is_scalar)) {
    throw_dimension(dimension, "booleans, integers, numbers and texts");
  }
  for (const SearchDimension& other : dimensions_) {
    if (other.name == dimension.name)
      throw ConfigError("search.space", {.what = name_in_messages(dimension) + " is given twice"});
  }
  dimensions_.push_back(std::move(dimension));
  return *this;
}

TrialParameters SearchSpace::random(std::uint64_t seed, std::int64_t trial) const {
  TrialParameters parameters;
  for (const SearchDimension& dimension : dimensions_) {
    const std::uint64_t key =
        detail::mix_key(seed, static_cast<std::uint64_t>(trial), parameters.size());
    parameters.emplace_back(dimension.name, random_value(dimension, key));
  }
  return parameters;
}

TrialParameters SearchSpace::grid(std::int64_t trial) const {
  TrialParameters parameters;
  for (auto dimension = dimensions_.rbegin(); dimension != dimensions_.rend(); ++dimension) {
    const std::int64_t count = count_of_values(*dimension);
    parameters.emplace_back(dimension->name, discrete_value(*dimension, trial % count));
    trial /= count;
  }
  std::reverse(parameters.begin(), parameters.end());
  return parameters;
}

std::int64_t SearchSpace::grid_size() const {
  std::int64_t size = 1;
  for (const SearchDimension& dimension : dimensions_) {
    if (!is_discrete(dimension))
      throw_dimension(dimension, "a list of values, because the search is a grid",
                      "use choice, or int or uniform with a step");
    const std::int64_t count = count_of_values(dimension);
    if (count > kMaxCombinations / size)
      throw_dimension(dimension, "at most a million combinations in a grid",
                      "use a larger step or a random search");
    size *= count;
  }
  return size;
}

}  // namespace hasten
