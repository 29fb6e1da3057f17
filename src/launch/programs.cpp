#include "launch/programs.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "base/environment_variable.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

bool can_run(const fs::path& file) {
  std::error_code error;
  return fs::is_regular_file(file, error) && access(file.c_str(), X_OK) == 0;
}

// Returns what to do about a name that is not in PATH.
std::string hint_for_missing_program(const std::string& name) {
  std::error_code error;
  if (fs::is_regular_file(name, error)) return "did you mean ./" + name + "?";
  if (name == "train")
    return "to train with hasten itself, name it first: hasten launch ... hasten train";
  return "";
}

}  // namespace

std::string find_in_path(const std::string& name) {
  for (const std::string& folder : split(environment_variable("PATH"), ':')) {
    if (!folder.empty() && can_run(fs::path(folder) / name))
      return (fs::path(folder) / name).string();
  }
  return "";
}

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (can_run(name)) return name;
    throw IoError("launch.program",
                  {.what = "program " + name,
                   .got = fs::exists(name) ? "a file that is not executable" : "no such file",
                   .hint = fs::exists(name) ? "run chmod +x " + name : ""});
  }
  if (std::string file = find_in_path(name); !file.empty()) return file;
  throw IoError("launch.program", {.what = "program " + name,
                                   .got = "no such program in PATH",
                                   .hint = hint_for_missing_program(name)});
}

}  // namespace hasten
