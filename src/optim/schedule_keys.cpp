#include "optim/schedule_keys.h"

#include <set>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "options/kwarg_rules.h"

namespace hasten {

void throw_schedule_kwargs(SchedulerType type, std::string got, std::string expected) {
  throw ConfigError("optim.scheduler-kwargs",
                    {.what = str("lr_scheduler_kwargs of ", name_of(type)),
                     .got = std::move(got),
                     .expected = std::move(expected)});
}

void check_schedule_keys(SchedulerType type, const Kwargs& kwargs) {
  std::set<std::string> keys;
  for (const config::KwargRule& rule : config::schedule_rules()) {
    if (rule.owner == name_of(type)) keys.emplace(rule.name);
  }
  for (const auto& [name, value] : kwargs.items()) {
    if (keys.count(name) > 0) continue;
    throw_schedule_kwargs(type, name,
                          keys.empty() ? "none" : join({keys.begin(), keys.end()}, ", "));
  }
}

}  // namespace hasten
