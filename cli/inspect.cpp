// `hasten inspect`: shows what an exported file contains and whether hasten runs it.
#include "hasten/exported/inspect.h"

#include <iostream>

#include "commands/inspect_options.h"
#include "torch_commands.h"

namespace hasten::cli {

int inspect(int argc, char** argv) {
  const InspectCommand command = parse_inspect({argv + 2, argv + argc});
  const ExportedContents contents = inspect_exported(
      command.file, {.operator_namespaces = command.namespaces,
                     .libraries = {command.library.begin(), command.library.end()}});
  std::cout << (command.json ? to_json(contents) : to_text(contents));
  return 0;
}

}  // namespace hasten::cli
