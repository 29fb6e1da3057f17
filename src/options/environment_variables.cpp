#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "options/sources.h"
#include "options/value.h"

namespace hasten::config {
namespace {
constexpr std::string_view kPrefix = "HASTEN_";
}

const std::vector<std::string>& internal_variables() {
  static const std::vector<std::string> names = {"HASTEN_CACHE",
                                                 "HASTEN_CPU_KERNELS",
                                                 "HASTEN_CUDA_KERNELS",
                                                 "HASTEN_DRY_RUN",
                                                 "HASTEN_DRY_TPU_COMPILER",
                                                 "HASTEN_DRY_TPU_TOPOLOGY",
                                                 "HASTEN_ENCRYPT",
                                                 "HASTEN_HOME",
                                                 "HASTEN_JOB_ID",
                                                 "HASTEN_JOB_TOKEN",
                                                 "HASTEN_LIBTORCH",
                                                 "HASTEN_LIBTPU",
                                                 "HASTEN_MINILM",
                                                 "HASTEN_NO_CONFIG_FILE",
                                                 "HASTEN_OBSERVE_CPU_PREDICTION",
                                                 "HASTEN_OBSERVE_MARK",
                                                 "HASTEN_OBSERVE_OUTPUT",
                                                 "HASTEN_OBSERVE_STEPS",
                                                 "HASTEN_PLAN_FOLDER",
                                                 "HASTEN_PROCESS_GROUP_BACKEND",
                                                 "HASTEN_RESUME_RUNS",
                                                 "HASTEN_SHARED_MEMORY",
                                                 "HASTEN_STORE",
                                                 "HASTEN_WATCHDOG"};
  return names;
}

std::vector<Assignment> read_environment(const OptionTable& table, const Environment& environment,
                                         const std::vector<std::string>& others,
                                         std::vector<std::string>& notices) {
  std::vector<Assignment> assignments;
  for (const auto& [variable, value] : environment) {
    if (!starts_with(variable, kPrefix) || value.empty()) continue;
    if (std::find(others.begin(), others.end(), variable) != others.end()) continue;
    const std::string key = lower(std::string_view(variable).substr(kPrefix.size()));
    const Origin origin{Origin::Source::environment, variable};
    if (table.find(key)) {
      assignments.push_back({.key = key, .value = value, .origin = origin});
    } else if (suggestion(table, key)) {
      throw_unknown(table, key, origin);
    } else {
      notices.push_back("environment variable " + variable + " is ignored: it is not an option");
    }
  }
  return assignments;
}

Environment whole_environment() {
  Environment environment;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

std::optional<bool> environment_flag(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  if (found == environment.end() || found->second.empty()) return std::nullopt;
  if (const auto flag = parse_bool(found->second)) return flag;
  throw ConfigError("config.bad-value",
                    {.what = name, .got = "'" + found->second + "'", .expected = "true or false"});
}

Environment process_environment() {
  Environment environment = whole_environment();
  std::erase_if(environment,
                [](const auto& variable) { return !starts_with(variable.first, kPrefix); });
  return environment;
}

}  // namespace hasten::config
