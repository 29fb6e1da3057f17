#include <cmath>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/search/search.h"
#include "options/value.h"
#include "search/search_run.h"

namespace hasten {
namespace {

[[noreturn]] void throw_parameter(const std::string& name, const config::Value& value,
                                  const char* expected) {
  throw UsageError("search.parameter", {.what = "parameter " + name,
                                        .got = "'" + config::to_text(value) + "'",
                                        .expected = expected});
}

const std::string* text_of_parameter(const config::Value& value) {
  return std::get_if<std::string>(&value);
}

}  // namespace

Trial::Trial(SearchRun& run, std::int64_t number, TrialParameters parameters)
    : run_(run), number_(number), parameters_(std::move(parameters)) {}

const config::Value& Trial::parameter(const std::string& name) const {
  std::vector<std::string> names;
  for (const auto& [each, value] : parameters_) {
    if (each == name) return value;
    names.push_back(each);
  }
  throw UsageError("search.parameter", {.what = "parameter " + name,
                                        .got = "a name that the space does not have",
                                        .expected = join(names, ", ")});
}

double Trial::value(const std::string& name) const {
  const config::Value& value = parameter(name);
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* number = std::get_if<std::int64_t>(&value)) return static_cast<double>(*number);
  const std::string* text = text_of_parameter(value);
  const auto read = text ? config::parse_finite(*text) : std::nullopt;
  if (!read) throw_parameter(name, value, "a number");
  return *read;
}

std::int64_t Trial::integer(const std::string& name) const {
  const config::Value& value = parameter(name);
  if (const auto* number = std::get_if<std::int64_t>(&value)) return *number;
  const std::string* text = text_of_parameter(value);
  const auto read = text ? config::parse_integer(*text) : std::nullopt;
  if (!read) throw_parameter(name, value, "an integer");
  return *read;
}

bool Trial::flag(const std::string& name) const {
  const config::Value& value = parameter(name);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  const std::string* text = text_of_parameter(value);
  const auto read = text ? config::parse_bool(*text) : std::nullopt;
  if (!read) throw_parameter(name, value, "true or false");
  return *read;
}

std::string Trial::text(const std::string& name) const {
  const config::Value& value = parameter(name);
  const std::string* text = text_of_parameter(value);
  if (!text) throw_parameter(name, value, "a text");
  return *text;
}

void Trial::report(std::int64_t step, double value) {
  if (step < 0)
    throw UsageError("search.step",
                     {.what = "Trial::report", .got = str("step ", step), .expected = "0 or more"});
  if (is_pruned_ || !reports_.emplace(step, value).second) return;
  is_pruned_ = run_.should_prune(reports_);
}

bool Trial::should_stop() const { return is_pruned_ || run_.is_interrupted(); }

std::nullopt_t Trial::fail(std::string reason) {
  failure_ = std::move(reason);
  if (failure_.empty()) failure_ = "no reason was given";
  return std::nullopt;
}

}  // namespace hasten
