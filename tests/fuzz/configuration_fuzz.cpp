// A libFuzzer target for the files of --config_file, in YAML and JSON. CMakeLists.txt builds it
// without LibTorch. The first byte selects the format. In an accepted file each key occurs once.
#include <cstdint>
#include <set>
#include <string>

#include "hasten/base/error.h"
#include "options/sources.h"
#include "parsed_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hasten;
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const fuzz::MemoryLimit limit(size);
  try {
    const auto values =
        data[0] % 2 == 0 ? config::read_yaml(text, "input") : config::read_json(text, "input");
    std::set<std::string> keys;
    for (const config::Assignment& value : values) {
      if (!keys.insert(value.key).second) std::abort();
    }
  } catch (const ConfigError&) {
  }
  return 0;
}
