// Carries out what `hasten plan -- PROGRAM` requests (commands/observe_options.h): each Trainer of
// the program gets the settings of a plan instead of its own.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "attach/attach.h"
#include "base/environment_variable.h"
#include "commands/observe_options.h"
#include "hasten/base/files.h"
#include "hasten/device/memory.h"
#include "hasten/options/training_arguments.h"
#include "options/changed_arguments.h"

namespace {

// Writes the program's own arguments, and the memory that it takes before its first Trainer begins.
void write_program(const std::filesystem::path& file, const hasten::TrainingArguments& arguments) {
  using Json = nlohmann::ordered_json;
  const Json program = {{"arguments", Json::parse(hasten::to_json(arguments))},
                        {"resident", hasten::host_memory().resident}};
  hasten::write_file_atomically(file, program.dump(1));
}

}  // namespace

void hasten_change_arguments(hasten::TrainingArguments& arguments) {
  using namespace hasten;
  const std::filesystem::path folder = environment_variable(kPlanFolderVariable);
  if (folder.empty()) return;
  static bool is_first = true;
  if (std::exchange(is_first, false)) write_program(folder / kPlanProgram, arguments);
  arguments = with_changes(arguments, read_file(folder / kPlanSettings));
}
