#include "machine/home_folder.h"

#include "hasten/base/text.h"

namespace hasten::config {

std::string variable_of(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

std::string with_home(const Environment& environment, const std::string& path) {
  const std::string home = variable_of(environment, "HOME");
  if (home.empty() || (path != "~" && !starts_with(path, "~/"))) return path;
  return home + path.substr(1);
}

std::string home_folder(const Environment& environment, const std::string& name,
                        const std::string& folder) {
  const std::string own = variable_of(environment, name);
  if (!own.empty()) return with_home(environment, own);
  const std::string cache = variable_of(environment, "XDG_CACHE_HOME");
  if (!cache.empty()) return with_home(environment, cache) + "/" + folder;
  const std::string home = variable_of(environment, "HOME");
  return home.empty() ? "" : home + "/.cache/" + folder;
}

}  // namespace hasten::config
