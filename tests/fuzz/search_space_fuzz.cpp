// A libFuzzer target for the files of `hasten search --space`, in YAML and JSON. CMakeLists.txt
// builds it without LibTorch. An accepted file must have parameters.
#include <cstdint>
#include <cstdlib>

#include "hasten/base/error.h"
#include "hasten/search/detail/search_space.h"
#include "parsed_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hasten;
  static const fuzz::MemoryFile file;
  file.write({reinterpret_cast<const char*>(data), size});
  const fuzz::MemoryLimit limit(size);
  try {
    if (read_search_space(file.path()).dimensions().empty()) std::abort();
  } catch (const ConfigError&) {
  }
  return 0;
}
