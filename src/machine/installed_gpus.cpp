#include "machine/installed_gpus.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/parse_number.h"
#include "hasten/base/text.h"

namespace hasten::config {
namespace {

namespace fs = std::filesystem;

std::string model_in(const fs::path& folder) {
  std::ifstream file(folder / "information");
  for (std::string line; std::getline(file, line);) {
    if (starts_with(line, "Model:")) return std::string(trim(line.substr(6)));
  }
  return "";
}

}  // namespace

std::vector<std::string> installed_gpus() {
  std::error_code error;
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator("/proc/driver/nvidia/gpus", error))
    folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());  // by bus address, as the driver counts
  std::vector<std::string> models;
  for (const fs::path& folder : folders) models.push_back(model_in(folder));
  return models;
}

std::vector<std::string> visible_gpus(const char* variable, std::size_t installed) {
  std::vector<std::string> visible;
  if (variable == nullptr) {
    for (std::size_t gpu = 0; gpu < installed; ++gpu) visible.push_back(std::to_string(gpu));
    return visible;
  }
  if (installed == 0) return {};
  for (const std::string& entry : split(variable, ',')) {
    const std::string name(trim(entry));
    const auto number = parse_number<std::size_t>(name);
    const bool is_gpu =
        number ? *number < installed : starts_with(name, "GPU-") || starts_with(name, "MIG-");
    if (!is_gpu) break;
    visible.push_back(name);
  }
  return visible;
}

std::vector<std::string> visible_gpus() {
  return visible_gpus(std::getenv(kVisibleGpusVariable), installed_gpus().size());
}

}  // namespace hasten::config
