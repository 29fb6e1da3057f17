#include "tpu/machine/installed_tpus.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "options/variable_of.h"
#include "tpu/machine/chip_variables.h"

namespace hasten::config {
namespace {

namespace fs = std::filesystem;

// The number of processes if the number of chips is unknown.
constexpr std::int64_t kDefaultProcesses = 8;

// Google's PCI vendor id. Network cards and disks of Google's machines without a TPU have it too.
constexpr std::string_view kGoogleVendor = "0x1ae0";
// The PCI device ids that torch_tpu 0.2 knows, with their TPU generation.
constexpr std::array<std::pair<std::string_view, const char*>, 5> kTpuDevices = {
    {{"0x005e", "v4"}, {"0x0062", "v5p"}, {"0x0063", "v5e"}, {"0x006f", "v6e"}, {"0x0076", "7x"}}};

std::string read_first_word(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// Returns the TPU generation of a PCI device, or an empty string if it is not a TPU.
std::string generation_of(const fs::path& device) {
  if (read_first_word(device / "vendor") != kGoogleVendor) return "";
  const std::string number = read_first_word(device / "device");
  const auto* const found = std::find_if(kTpuDevices.begin(), kTpuDevices.end(),
                                         [&](const auto& tpu) { return tpu.first == number; });
  return found == kTpuDevices.end() ? "" : found->second;
}

bool is_exposed(const fs::path& device, const fs::path& exposed) {
  std::error_code error;
  const fs::path group = fs::read_symlink(device / "iommu_group", error);
  return !error && fs::exists(exposed / group.filename(), error);
}

std::vector<std::string> parse_chips(const std::string& name, const std::string& text) {
  std::vector<std::string> numbers = split(text, ',');
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::string& number = numbers[i];
    const bool digits = !number.empty() && number.size() <= 4 &&
                        number.find_first_not_of("0123456789") == std::string::npos;
    const auto here = numbers.begin() + static_cast<std::ptrdiff_t>(i);
    if (digits && std::find(numbers.begin(), here, number) == here) continue;
    throw ConfigError("launch.environment", {.what = name,
                                             .got = "'" + text + "'",
                                             .expected = "numbers separated by commas, each once"});
  }
  return numbers;
}

}  // namespace

std::vector<std::string> installed_tpus(const std::string& devices, const std::string& exposed) {
  std::error_code none;
  std::vector<std::string> all, exposed_tpus;
  for (const auto& device : fs::directory_iterator(devices, none)) {
    const std::string generation = generation_of(device.path());
    if (generation.empty()) continue;
    all.push_back(generation);
    if (is_exposed(device.path(), exposed)) exposed_tpus.push_back(generation);
  }
  return exposed_tpus.empty() ? all : exposed_tpus;
}

bool names_tpu_plugin(const Environment& environment) {
  const std::string path = variable_of(environment, "TPU_LIBRARY_PATH");
  return !path.empty() && fs::path(path).filename() != "libtpu.so";
}

std::string missing_tpu_reason(const Environment& environment) {
  if (!installed_tpus().empty() || names_tpu_plugin(environment)) return "";
  return "no TPU among this machine's PCI devices";
}

std::optional<std::vector<std::string>> tpu_chips(const Environment& environment) {
  const std::string name = chip_variable_of(environment);
  if (name.empty()) return std::nullopt;
  return parse_chips(name, variable_of(environment, name));
}

std::int64_t tpu_processes(const Environment& environment) {
  if (const auto chips = tpu_chips(environment)) return static_cast<std::int64_t>(chips->size());
  const auto installed = static_cast<std::int64_t>(installed_tpus().size());
  return installed > 0 ? installed : kDefaultProcesses;
}

}  // namespace hasten::config
