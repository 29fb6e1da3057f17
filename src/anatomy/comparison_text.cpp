#include "anatomy/comparison_text.h"

#include <cmath>
#include <cstdlib>
#include <vector>

#include "base/count_text.h"
#include "hasten/base/text.h"

namespace hasten::anatomy {
namespace {

// Returns a sign and a size: "-1.2 GB".
std::string signed_bytes(std::int64_t bytes) {
  return bytes == 0 ? "0 B" : str(bytes < 0 ? "-" : "+", human_bytes(std::abs(bytes)));
}

std::string percent(double now, double before) {
  if (now <= 0 || before <= 0) return "-";
  const std::int64_t share = std::llround(100 * (now / before - 1));
  return str(share > 0 ? "+" : "", share, " %");
}

// Returns the row of a step that can be made, or of the step as asked. The cost of the step as
// asked may be unknown.
std::vector<std::string> row_of(const StepComparison& comparison, const std::string& name,
                                const StepCost& cost, Exactness exactness) {
  const std::string exactness_name(name_of(exactness));
  if (cost.bytes == 0) return {name, "-", "-", "", "-", "-", exactness_name};
  const std::int64_t bytes = cost.bytes + comparison.process;
  const std::int64_t baseline = comparison.baseline.bytes;
  return {name,
          human_bytes(bytes),
          baseline > 0 ? signed_bytes(cost.bytes - baseline) : "-",
          comparison.memory > 0 ? fit_text(bytes, comparison.memory) : "",
          step_duration(cost.seconds),
          percent(cost.seconds, comparison.baseline.seconds),
          exactness_name};
}

}  // namespace

std::string three_digits(double value) {
  return value < 100 ? significant(value, 3) : group_thousands(std::llround(value));
}

std::string step_duration(double seconds) {
  if (seconds <= 0) return "-";
  return seconds < 1 ? three_digits(1000 * seconds) + " ms" : three_digits(seconds) + " s";
}

std::string limit_text(std::int64_t memory, std::int64_t process) {
  return str(" within ", human_bytes(memory),
             process > 0 ? str(", of which the program itself uses ", human_bytes(process)) : "");
}

std::string fit_text(std::int64_t bytes, std::int64_t memory) {
  return bytes <= memory ? "fits" : "does not fit";
}

std::string batches_text(std::int64_t rows, std::int64_t accumulation) {
  return str("batches of ", count_text(rows, "row"), ", ", accumulation, " in a step");
}

std::string to_text(const StepComparison& comparison) {
  std::vector<std::vector<std::string>> rows = {
      row_of(comparison, "as asked", comparison.baseline, Exactness::exact)};
  std::string refused;
  for (const StepChange& each : comparison.changes) {
    if (each.rejection_reason.empty()) {
      rows.push_back(row_of(comparison, each.name, each.cost, each.exactness));
    } else {
      refused += str("  ", each.name, ": ", each.rejection_reason, "\n");
    }
  }
  return str(comparison.model, " on ", comparison.device, ", ",
             batches_text(comparison.rows, comparison.accumulation),
             comparison.memory > 0 ? limit_text(comparison.memory, comparison.process) : "", "\n\n",
             table({"change", "memory", "difference", "", "step", "difference", "exactness"}, rows),
             refused.empty() ? "" : "\nNot possible with this step:\n" + refused);
}

nlohmann::ordered_json json_of(const StepComparison& comparison) {
  using Json = nlohmann::ordered_json;
  Json changes = Json::array();
  for (const StepChange& each : comparison.changes) {
    Json change = {
        {"name", each.name}, {"effect", each.effect}, {"exactness", name_of(each.exactness)}};
    if (each.rejection_reason.empty()) {
      change["bytes"] = each.cost.bytes + comparison.process;
      change["seconds"] = each.cost.seconds;
    } else {
      change["rejection_reason"] = each.rejection_reason;
    }
    changes.push_back(std::move(change));
  }
  const std::int64_t baseline = comparison.baseline.bytes;
  return {{"model", comparison.model},
          {"device", comparison.device},
          {"memory", comparison.memory},
          {"process", comparison.process},
          {"rows", comparison.rows},
          {"accumulation", comparison.accumulation},
          {"bytes", baseline > 0 ? baseline + comparison.process : 0},
          {"seconds", comparison.baseline.seconds},
          {"changes", changes}};
}

std::string to_json(const StepComparison& comparison) { return json_of(comparison).dump(1) + "\n"; }

}  // namespace hasten::anatomy
