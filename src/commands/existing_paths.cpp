#include "commands/existing_paths.h"

#include <algorithm>

#include "base/did_you_mean.h"
#include "base/file_calls.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/machine/model_folder.h"
#include "hasten/options/train_options.h"

namespace hasten {

void check_model_exists(const std::string& model) {
  const std::vector<std::string>& builtin = builtin_models();
  if (std::find(builtin.begin(), builtin.end(), model) != builtin.end()) return;
  if (path_exists(model_folder(model))) return;
  throw IoError(
      "io.not-found",
      {.what = "--model " + model + ": no such folder or file",
       .hint = did_you_mean(nearest(model, builtin), "built-in names are " + join(builtin, ", "),
                            [](const std::string& name) { return "the built-in " + name; })});
}

void check_path_exists(const std::string& path) {
  if (path_exists(path)) return;
  throw IoError("io.not-found", {.what = path + ": no such folder or file"});
}

}  // namespace hasten
