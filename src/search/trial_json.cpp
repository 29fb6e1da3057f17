#include "search/trial_json.h"

#include <cmath>
#include <limits>

#include "base/json_number.h"

namespace hasten {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TrialJson number_json(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  return number;
}

double number_of(const TrialJson& json) {
  if (json == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (json == "inf") return kInfinity;
  if (json == "-inf") return -kInfinity;
  return json.get<double>();
}

std::int64_t whole_number_of(const TrialJson& json) {
  const auto number = whole_number_in(json);
  if (!number) throw TrialJson::other_error::create(501, "no whole number", &json);
  return *number;
}

struct ParameterWriter {
  TrialJson operator()(bool flag) const { return flag; }
  TrialJson operator()(std::int64_t number) const { return number; }
  TrialJson operator()(double number) const { return number_json(number); }
  TrialJson operator()(const std::string& text) const { return text; }
  template <class Other>
  TrialJson operator()(const Other&) const {
    return nullptr;  // a space has no other values
  }
};

TrialState state_of(const TrialJson& json) {
  const auto state = from_name<TrialState>(json.get<std::string>());
  if (!state) throw TrialJson::other_error::create(501, "unknown state", &json);
  return *state;
}

}  // namespace

TrialJson parameters_json(const TrialParameters& parameters) {
  TrialJson json = TrialJson::object();
  for (const auto& [name, value] : parameters) json[name] = std::visit(ParameterWriter{}, value);
  return json;
}

TrialJson trial_json(const FinishedTrial& trial) {
  TrialJson json = {{"trial", trial.number},
                    {"state", std::string(name_of(trial.state))},
                    {"parameters", parameters_json(trial.parameters)}};
  if (trial.value) json["value"] = number_json(*trial.value);
  json["reports"] = TrialJson::array();
  for (const auto& [step, value] : trial.reports)
    json["reports"].push_back(TrialJson::array({step, number_json(value)}));
  json["seconds"] = trial.seconds;
  if (!trial.reason.empty()) json["reason"] = trial.reason;
  return json;
}

FinishedTrial trial_in(const TrialJson& json) {
  FinishedTrial trial{.number = whole_number_of(json.at("trial")),
                      .state = state_of(json.at("state")),
                      .seconds = json.at("seconds").get<double>(),
                      .reason = json.value("reason", "")};
  if (json.contains("value")) trial.value = number_of(json.at("value"));
  const bool is_complete = trial.state == TrialState::complete;
  if (trial.value.has_value() != is_complete || std::isnan(trial.value.value_or(0)))
    throw TrialJson::other_error::create(501, "a value that does not fit the state", &json);
  for (const TrialJson& report : json.at("reports"))
    trial.reports[whole_number_of(report.at(0))] = number_of(report.at(1));
  return trial;
}

}  // namespace hasten
