#include "tpu/machine/tpus.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "base/did_you_mean.h"
#include "base/parse_number.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "options/variable_of.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

struct Chip {
  const char* name;
  std::size_t dimensions;  // the dimensions of the network between chips
  const char* example;
};
constexpr Chip kChips[] = {{"v4", 3, "v4:2x2x1"},
                           {"v5e", 2, "v5e:2x2"},
                           {"v5p", 3, "v5p:2x2x2"},
                           {"v6e", 2, "v6e:2x4"},
                           {"tpu7x", 3, "tpu7x:2x2x1"}};

std::optional<std::int64_t> parse_size(const std::string& text) {
  constexpr std::int64_t kMaxSize = 64;  // no TPU network is wider
  const auto size = parse_number<std::int64_t>(text);
  return size && *size > 0 && *size <= kMaxSize ? size : std::nullopt;
}

// Returns the number of chips in the grid, or 0 if the grid does not have `dimensions` dimensions.
std::int64_t chips_in(const std::string& grid, std::size_t dimensions) {
  const std::vector<std::string> parts = split(grid, 'x');
  if (parts.size() != dimensions) return 0;
  std::int64_t chips = 1;
  for (const std::string& part : parts) chips *= parse_size(part).value_or(0);
  return chips;
}

std::string examples() {
  std::vector<std::string> all;
  for (const Chip& chip : kChips) all.emplace_back(chip.example);
  return join(all, ", ");
}

// Adds the folders of Python packages in the environment at `root`.
void add_packages_of(const fs::path& root, std::vector<std::string>& folders) {
  std::error_code none;
  for (const auto& each : fs::directory_iterator(root / "lib", none))
    if (starts_with(each.path().filename().string(), "python"))
      folders.push_back((each.path() / "site-packages").string());
}

}  // namespace

TpuTopology parse_tpu_topology(std::string_view name) {
  const std::size_t colon = std::min(name.find(':'), name.size());
  const std::string chip_name(name.substr(0, colon));
  const std::string grid(name.substr(std::min(colon + 1, name.size())));
  std::vector<std::string> names;
  for (const Chip& chip : kChips) {
    names.emplace_back(chip.name);
    if (chip.name != chip_name) continue;
    if (const std::int64_t chips = chips_in(grid, chip.dimensions); chips > 0)
      return {.name = std::string(name), .chip = chip_name, .chips = chips};
    throw ConfigError("config.unknown-device",
                      {.what = "the topology of a " + chip_name,
                       .got = "'" + std::string(name) + "'",
                       .expected = str(chip.dimensions, " sizes, such as ", chip.example)});
  }
  std::vector<std::string> near;
  for (const std::string& each : names)
    if (!chip_name.empty() && starts_with(each, chip_name)) near.push_back(each);
  if (const auto nearest_name = nearest(chip_name, names); near.empty() && nearest_name)
    near.push_back(*nearest_name);
  throw ConfigError("config.unknown-device",
                    {.what = "the topology of a TPU",
                     .got = "'" + std::string(name) + "'",
                     .expected = "a chip and its grid, such as " + examples(),
                     .hint = did_you_mean(near)});
}

std::string find_libtpu(const config::Environment& environment,
                        const std::vector<std::string>& folders) {
  const auto variable = [&](const char* name) { return config::variable_of(environment, name); };
  // Python skips folders that cannot be examined, so they count as folders without the library.
  const auto exists = [](const fs::path& file) {
    std::error_code none;
    return fs::exists(file, none);
  };
  const std::string named = variable("HASTEN_LIBTPU");
  std::vector<std::string> all;
  if (named.empty()) {
    if (const std::string active = variable("VIRTUAL_ENV"); !active.empty())
      add_packages_of(active, all);
    for (const std::string& each : split(variable("PYTHONPATH"), ':'))
      if (!each.empty()) all.push_back(each);
    all.insert(all.end(), folders.begin(), folders.end());
    for (const std::string& each : all) {
      const fs::path library = fs::path(each) / "libtpu/libtpu.so";
      if (exists(library)) return library.string();
    }
  } else if (exists(named)) {
    return named;
  }
  throw IoError(
      "device.tpu-compiler",
      {.what = "Google's compiler for TPUs, libtpu.so",
       .got = !named.empty() ? "HASTEN_LIBTPU=" + named + ", which does not exist"
              : all.empty()  ? "no active Python environment"
                             : "none in " + join(all, ", "),
       .hint = "run python3 -m pip install libtpu in the active environment; no TPU is needed"});
}

}  // namespace hasten
