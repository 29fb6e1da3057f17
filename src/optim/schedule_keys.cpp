#include "optim/schedule_keys.h"

#include <set>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "options/kwarg_rules.h"

namespace hasten {
namespace {

KwargValue default_of_key(SchedulerType type, const std::string& name) {
  return config::default_of(config::schedule_rules(), name_of(type), name);
}

}  // namespace

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

double schedule_number(SchedulerType type, const Kwargs& kwargs, const std::string& name) {
  return kwargs.number(name, default_of_key(type, name).number());
}

std::string schedule_text(SchedulerType type, const Kwargs& kwargs, const std::string& name) {
  return kwargs.text(name, default_of_key(type, name).text());
}

bool schedule_flag(SchedulerType type, const Kwargs& kwargs, const std::string& name) {
  return kwargs.flag(name, default_of_key(type, name).text() == "true");
}

}  // namespace hasten
