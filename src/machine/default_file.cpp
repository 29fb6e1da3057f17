#include "machine/default_file.h"

#include <filesystem>

#include "hasten/base/text.h"

namespace hasten::config {
namespace {

namespace fs = std::filesystem;

std::string value_of(const Environment& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

// Replaces a leading ~ by the home folder, as Accelerate does.
std::string expanded(const Environment& environment, const std::string& path) {
  const std::string home = value_of(environment, "HOME");
  if (home.empty() || (path != "~" && !starts_with(path, "~/"))) return path;
  return home + path.substr(1);
}

// Returns $name if it is set, otherwise `folder` in the user's cache, or an empty text if neither
// XDG_CACHE_HOME nor HOME is set.
std::string home_of(const Environment& environment, const char* name, const std::string& folder) {
  const std::string own = value_of(environment, name);
  if (!own.empty()) return expanded(environment, own);
  const std::string cache = value_of(environment, "XDG_CACHE_HOME");
  if (!cache.empty()) return expanded(environment, cache) + "/" + folder;
  const std::string home = value_of(environment, "HOME");
  return home.empty() ? "" : home + "/.cache/" + folder;
}

// The file that the command line or HASTEN_CONFIG_FILE names; empty if neither does.
std::string named_file(const std::string& named, const Environment& environment) {
  if (!named.empty()) return named;
  return split(value_of(environment, "HASTEN_CONFIG_FILE"), ',').front();
}

bool is_file(const std::string& path) {
  std::error_code error;
  return !path.empty() && fs::is_regular_file(path, error);
}

}  // namespace

std::string default_file(const Environment& environment) {
  const std::string home = home_of(environment, "HASTEN_HOME", "hasten");
  return home.empty() ? "" : home + "/default_config.yaml";
}

std::vector<std::string> accelerate_default_files(const Environment& environment) {
  const std::string home = home_of(environment, "HF_HOME", "huggingface");
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
