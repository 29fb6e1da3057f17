// File: accelerate_file/questions.h (internal)
// Asks the questions of `hasten config`, one at a time. Each shows its default in brackets. An
// invalid answer is reported, and the question is asked again.
//
//   const config::Prompter prompter{
//       .print = [](const std::string& text) { std::cout << text; },
//       .read_line = []() -> std::optional<std::string> {
//         std::string line;
//         if (!std::getline(std::cin, line)) return std::nullopt;
//         return line;
//       }};
//   const config::LaunchFile file = config::ask_launch_file(
//       config::launch_file_for(gpus, tpus), gpus, tpus, prompter);
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

// Prints the questions and reads the answers.
struct Prompter {
  std::function<void(const std::string&)> print;
  std::function<std::optional<std::string>()> read_line;  // nullopt at the end
};

// Asks for every value of the file; `start` has the defaults, `gpus` and `tpus` count this
// machine's devices.
HASTEN_INTERNAL_API LaunchFile ask_launch_file(LaunchFile start, std::size_t gpus, std::size_t tpus,
                                               const Prompter& prompter);

// Asks a question whose answer is yes or no.
HASTEN_INTERNAL_API bool ask_yes_no(const std::string& question, bool default_value,
                                    const Prompter& prompter);

}  // namespace hasten::config
