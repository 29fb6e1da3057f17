// A libFuzzer target for the manifest of a checkpoint. CMakeLists.txt builds it with LibTorch,
// whose libraries are not instrumented.
//
// The first byte selects whether the text is the whole file, or JSON to which the target adds the
// checksum of a manifest, so that the fuzzer need not guess it. The folder has another file next to
// the manifest. An accepted manifest must describe possible tensors.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "base/sha256.h"
#include "formats/manifest_file.h"
#include "hasten/base/error.h"
#include "hasten/checkpoint/manifest.h"
#include "parsed_file.h"

using namespace hasten;

namespace {

// A folder with a file that manifests may describe.
const fuzz::MemoryFolder& folder() {
  static const fuzz::MemoryFolder made;
  static const auto file = made.write("model.safetensors", std::string("\x02\0\0\0\0\0\0\0{}", 10));
  return made;
}

std::string with_checksum(const std::string& text) {
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) return text;
  json.erase("manifest_sha256");
  try {
    json["manifest_sha256"] = sha256_of_text(json.dump(2) + "\n");
    return json.dump(2) + "\n";
  } catch (const nlohmann::json::exception&) {  // the text is not UTF-8
    return text;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 4 != 0) text = with_checksum(text);
  folder().write(kManifestFile, text);
  const fuzz::MemoryLimit limit(text.size());
  try {
    for (const auto& [file, record] : read_file_records(folder().path(), kCheckpointManifest)) {
      for (const auto& [name, tensor] : record.tensors) {
        if (!is_valid(tensor)) std::abort();
      }
    }
  } catch (const DataError&) {
  }
  try {
    verify_checkpoint(folder().path());
  } catch (const DataError&) {
  } catch (const IoError&) {  // the system refuses the file name
  }
  return 0;
}
