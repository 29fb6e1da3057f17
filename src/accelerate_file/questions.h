// File: accelerate_file/questions.h (internal)
// Asks the questions of `hasten config`, one at a time. Each shows its default in brackets. An
// invalid answer is reported, and the question is asked again.
//
//   const config::Dialogue dialogue{
//       .say = [](const std::string& text) { std::cout << text; },
//       .answer = []() -> std::optional<std::string> {
//         std::string line;
//         if (!std::getline(std::cin, line)) return std::nullopt;
//         return line;
//       }};
//   const config::LaunchFile file = config::ask_launch_file(
//       config::launch_file_for(gpus, tpus), gpus, tpus, dialogue);
//
// Needs no torch. Thread rule: one thread. Throws ConfigError "config.no-answer" if the answers end
// before the questions do.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "accelerate_file/launch_file.h"
#include "base/internal_api.h"

namespace hasten::config {

// The two directions of a dialogue.
struct Dialogue {
  std::function<void(const std::string&)> say;
  std::function<std::optional<std::string>()> answer;  // Reads one line; nullopt at the end.
};

// Asks for every value of the file; `start` has the defaults, `gpus` and `tpus` count this
// machine's devices.
HASTEN_INTERNAL_API LaunchFile ask_launch_file(LaunchFile start, std::size_t gpus, std::size_t tpus,
                                               const Dialogue& dialogue);

// Asks a question whose answer is yes or no.
HASTEN_INTERNAL_API bool ask_yes_no(const std::string& question, bool by_default,
                                    const Dialogue& dialogue);

}  // namespace hasten::config
