#include "machine/default_file.h"

#include <filesystem>

#include "hasten/base/text.h"
#include "machine/home_folder.h"
#include "options/variable_of.h"

namespace hasten::config {
namespace {

namespace fs = std::filesystem;

// Returns the file that the command line or HASTEN_CONFIG_FILE names; empty if neither does.
std::string named_file(const std::string& named, const Environment& environment) {
  if (!named.empty()) return named;
  return split(variable_of(environment, "HASTEN_CONFIG_FILE"), ',').front();
}

bool is_file(const std::string& path) {
  std::error_code error;
  return !path.empty() && fs::is_regular_file(path, error);
}

}  // namespace

std::string default_file(const Environment& environment) {
  const std::string home = home_folder(environment, "HASTEN_HOME", "hasten");
  return home.empty() ? "" : home + "/default_config.yaml";
}

std::vector<std::string> accelerate_default_files(const Environment& environment) {
  const std::string home = home_folder(environment, "HF_HOME", "huggingface");
  if (home.empty()) return {};
  return {home + "/accelerate/default_config.yaml", home + "/accelerate/default_config.json"};
}

std::string find_default_file(const Environment& environment) {
  if (const std::string own = default_file(environment); is_file(own)) return own;
  for (const std::string& file : accelerate_default_files(environment)) {
    if (is_file(file)) return file;
  }
  return "";
}

std::string file_to_read(const std::string& named, const Environment& environment) {
  const std::string file = named_file(named, environment);
  return file.empty() ? find_default_file(environment) : file;
}

std::string file_to_write(const std::string& named, const Environment& environment) {
  const std::string file = named_file(named, environment);
  return file.empty() ? default_file(environment) : file;
}

}  // namespace hasten::config
