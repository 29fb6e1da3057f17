#include "launch/programs.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

bool can_run(const fs::path& file) {
  return fs::is_regular_file(file) && access(file.c_str(), X_OK) == 0;
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (can_run(name)) return name;
    throw IoError("launch.program",
                  {.what = "program " + name,
                   .got = fs::exists(name) ? "a file that is not executable" : "no such file",
                   .hint = fs::exists(name) ? "run chmod +x " + name : ""});
  }
  const char* const path = std::getenv("PATH");
  for (const std::string& folder : split(path ? path : "", ':')) {
    if (!folder.empty() && can_run(fs::path(folder) / name))
      return (fs::path(folder) / name).string();
  }
  throw IoError("launch.program", {.what = "program " + name,
                                   .got = "no such program in PATH",
                                   .hint = fs::exists(name) ? "did you mean ./" + name + "?" : ""});
}

}  // namespace hasten
