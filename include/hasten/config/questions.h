// File: hasten/config/questions.h
// The questions of `hasten config`, one at a time: each with its default in brackets, a wrong
// answer told and asked again.
//
//   const config::Dialogue dialogue{.say = [](const std::string& text) { std::cout << text; },
//                                   .answer = [] { ... a line, or nothing at the end ... }};
//   const config::LaunchFile file =
//       config::asked_launch_file(config::launch_file_here(), installed_gpus().size(),
//                                 installed_tpus().size(), dialogue);
//
// Needs no torch. Thread rule: one thread. Throws ConfigError "config.no-answer" where the answers
// end before the questions do.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "hasten/config/launch_file.h"

namespace hasten::config {

struct Dialogue {
  std::function<void(const std::string&)> say;
  std::function<std::optional<std::string>()> answer;  // one line; nullopt: there are no more
};

// `gpus`, `tpus`: those of this machine.
LaunchFile asked_launch_file(LaunchFile start, std::size_t gpus, std::size_t tpus,
                             const Dialogue& dialogue);

bool asked_yes(const std::string& question, bool by_default, const Dialogue& dialogue);

}  // namespace hasten::config
