// File: options/kwarg_rules.h (internal)
// The keys that lr_scheduler_kwargs, optim_args and activation_checkpointing_kwargs may hold. The
// checks and the reference page use these tables, and the schedules take their defaults from them.
// trainer/optimizer_builder.cpp states the defaults of optim_args again.
//
//   check_kwargs("optim_args", "sgd", {{"momentum", 0.9}}, optimizer_rules());
//
// check_kwargs() throws ConfigError "config.unknown-key", "config.out-of-range" and
// "config.missing"; default_of() throws std::out_of_range.
// Thread rule: constants and pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/internal_api.h"
#include "hasten/options/detail/kwargs.h"

namespace hasten::config {

// A key of a schedule, an optimizer or an argument.
struct KwargRule {
  std::string_view owner;  // a schedule, an optimizer or an argument
  std::string_view name;
  std::string_view default_text;  // "required", or the value that applies without the key
  std::string_view help;
  double minimum = 0;                  // a number's lower limit, inclusive
  bool whole = false;                  // the number must be whole
  std::vector<std::string> choices{};  // if not empty, the value is one of these and not a number
  std::optional<double> below{};       // a number's upper limit, exclusive
  bool above = false;                  // a number's lower limit is exclusive
  bool is_text = false;                // any text
};
HASTEN_INTERNAL_API const std::vector<KwargRule>& schedule_rules();
const std::vector<KwargRule>& optimizer_rules();
const std::vector<KwargRule>& recomputation_rules();
const std::vector<KwargRule>& sharing_rules();

// Throws for keys that the owner does not have, for values out of their range, and for missing
// required keys. `option` is the argument that holds the keys.
void check_kwargs(const std::string& option, std::string_view owner, const Kwargs& kwargs,
                  const std::vector<KwargRule>& rules);

// Returns the value that applies without the key, which is a number or a word. Throws if the rules
// do not have the key.
HASTEN_INTERNAL_API KwargValue default_of(const std::vector<KwargRule>& rules,
                                          std::string_view owner, std::string_view name);

// Replaces each value that is one of several words by the spelling in the rules. check_kwargs()
// accepts capital letters, but the functions that read the value compare it exactly.
void normalize_choices(std::string_view owner, Kwargs& kwargs, const std::vector<KwargRule>& rules);

// The owners of recomputation_rules() and sharing_rules().
inline constexpr std::string_view kRecomputation = "activation_checkpointing";
inline constexpr std::string_view kSharing = "accelerator_config";

}  // namespace hasten::config
