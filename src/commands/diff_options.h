// File: commands/diff_options.h (internal)
// The options of `hasten diff` and `hasten verify`.
//
//   const DiffCommand diff = parse_diff({argv + 2, argv + argc});
//   const VerifyCommand verify = parse_verify({argv + 2, argv + argc});
//
// Needs no torch. Throws ConfigError "config.*". Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/internal_api.h"

namespace hasten {

struct DiffCommand {
  bool help = false;
  std::string a, b;  // the folders of two runs
  std::int64_t from = 0;
};

struct VerifyCommand {
  bool help = false;
  std::string run;
  std::int64_t from = 0;
};

// Each parses the arguments after its command.
HASTEN_INTERNAL_API DiffCommand parse_diff(const std::vector<std::string>& arguments);
HASTEN_INTERNAL_API VerifyCommand parse_verify(const std::vector<std::string>& arguments);
HASTEN_INTERNAL_API std::string diff_help(int width);
HASTEN_INTERNAL_API std::string verify_help(int width);

}  // namespace hasten
