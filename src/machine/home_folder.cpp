#include "machine/home_folder.h"

#include "options/variable_of.h"

namespace hasten::config {

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
