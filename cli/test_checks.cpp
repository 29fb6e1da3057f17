#include "test_checks.h"

#include <algorithm>

namespace hasten::cli {

const Group& RankContext::require_group() const {
  if (!group) throw CheckSkipped("the ranks have not formed a group");
  return *group;
}

std::string same_for_all(const std::vector<Json>& facts, const char* name, const char* title) {
  const std::string first = facts.front().at(name);
  for (std::size_t rank = 1; rank < facts.size(); ++rank) {
    const std::string own = facts[rank].at(name);
    if (own != first)
      throw CheckFailed(str(title, " of rank ", rank), own, str(first, ", as on rank 0"));
  }
  return first;
}

std::string values_of(const std::vector<Json>& facts, const char* name) {
  std::vector<std::string> values;
  for (const Json& each : facts) {
    const std::string value =
        each.at(name).is_string() ? each.at(name).get<std::string>() : each.at(name).dump();
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  }
  return join(values, ", ");
}

double max_value(const std::vector<Json>& facts, const char* name) {
  double most = 0;
  for (const Json& each : facts) most = std::max(most, each.at(name).get<double>());
  return most;
}

std::vector<Check> checks_of_ranks() {
  std::vector<Check> all;
  for (const auto& some : {checks_of_single_ranks(), checks_of_group(), checks_of_collectives(),
                           checks_of_training(), checks_of_bandwidth(), checks_of_tpus()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

}  // namespace hasten::cli
