// File: commands/inspect_options.h (internal)
// The options of `hasten inspect`.
//
//   const InspectCommand run = parse_inspect({argv + 2, argv + argc});
//   run.file;       // the argument before the first option
//
// Needs no torch. Throws ConfigError "config.*". Thread rule: values and a pure function.
#pragma once

#include <string>
#include <vector>

#include "base/internal_api.h"

namespace hasten {

struct InspectCommand {
  bool help = false;
  std::string file;
  bool json = false;
  std::vector<std::string> namespaces;  // namespaces with operators in addition to LibTorch's
  std::vector<std::string> library;     // files that register such operators
};

// Parses the arguments after `inspect`.
HASTEN_INTERNAL_API InspectCommand parse_inspect(const std::vector<std::string>& arguments);
HASTEN_INTERNAL_API std::string inspect_help(int width);

}  // namespace hasten
