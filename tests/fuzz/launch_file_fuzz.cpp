// A libFuzzer target for the files of Accelerate that `hasten config update` rewrites, in YAML and
// JSON. The first byte selects the format. CMakeLists.txt builds it without LibTorch. Rewriting a
// rewritten text again must succeed and must not change it.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "accelerate_file/launch_file.h"
#include "hasten/base/error.h"
#include "parsed_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hasten;
  if (size == 0) return 0;
  const std::string name = data[0] % 2 == 0 ? "input.json" : "input.yaml";
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const fuzz::MemoryLimit limit(size);
  std::string once;
  try {
    once = config::updated_launch_file(text, name).text;
  } catch (const Error&) {
    return 0;
  }
  if (config::updated_launch_file(once, name).text != once) std::abort();
  return 0;
}
