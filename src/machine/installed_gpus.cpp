#include "machine/installed_gpus.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

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

}  // namespace hasten::config
