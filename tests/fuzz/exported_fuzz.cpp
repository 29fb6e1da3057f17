// A libFuzzer target for files of torch.export, up to the module: the archive, JSON, the operators'
// arguments, tensors and guards. CMakeLists.txt builds it with LibTorch, whose libraries are not
// instrumented.
//
// The first byte selects the meaning of the other bytes, so that the fuzzer need not guess
// checksums. They are the whole archive, the text of one record of a fixed archive, a guard, or a
// size. A file may only be refused with hasten's own errors, and its memory is limited.
#include <cstdint>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "exported/payloads.h"
#include "exported/program_reader.h"
#include "exported/size_expression.h"
#include "formats/zip_archive.h"
#include "hasten/base/error.h"
#include "parsed_file.h"
#include "zip_bytes.h"

using namespace hasten;

namespace {

const char* const kProgramName = "m/models/model.json";
const char* const kWeightsName = "m/data/weights/model_weights_config.json";

// Returns an archive in which `text` replaces the program or the table of weights.
std::string archive_with(const char* changed, const std::string& text) {
  static const std::map<std::string, std::string> base = {
      {"m/archive_format", "pt2"},
      {"m/archive_version", "0"},
      {"m/byteorder", "little"},
      {kProgramName, "{}"},
      {kWeightsName, R"({"config": {}})"},
      {"m/data/constants/model_constants_config.json", R"({"config": {}})"},
      {"m/data/weights/weight_0", std::string(64, '\1')}};
  std::map<std::string, std::string> records = base;
  records[changed] = text;
  return archive_of(records);
}

// Reads everything in a file with these bytes.
void read_archive(const std::string& bytes) {
  static const fuzz::MemoryFile file;
  file.write(bytes);
  const fuzz::MemoryLimit limit(bytes.size());
  const ZipArchive archive(file.path());
  for (const std::string& name : archive.names()) {
    try {
      archive.record(name);
    } catch (const DataError&) {
    }
  }
  for (const std::string& name : exported::program_names(archive)) {
    for (const char* const folder : {"data/weights/", "data/constants/"}) {
      try {
        exported::load_payloads(archive, exported::read_payloads(archive, folder, name));
      } catch (const DataError&) {
      }
    }
    exported::read_program(archive, name, {});
  }
}

void read_guard(const std::string& text) {
  const exported::SizeValues values{
      [](std::size_t input, std::int64_t dimension) -> std::optional<std::int64_t> {
        return dimension == 0 ? std::optional<std::int64_t>(4 + static_cast<std::int64_t>(input))
                              : std::nullopt;
      },
      {{"s0", 4}}};
  const fuzz::MemoryLimit limit(text.size());
  exported::SizeExpression::parse_guard(text, {"x", "y"}, "guard").evaluate(values);
}

void read_size(const std::string& text) {
  const fuzz::MemoryLimit limit(text.size());
  exported::SizeExpression::parse_srepr(text, "size").evaluate({nullptr, {{"s0", 4}}});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    switch (data[0]) {
      case 'p':
        read_archive(archive_with(kProgramName, text));
        break;
      case 'w':
        read_archive(archive_with(kWeightsName, text));
        break;
      case 'g':
        read_guard(text);
        break;
      case 's':
        read_size(text);
        break;
      default:
        read_archive(text);
    }
  } catch (const DataError&) {
  }
  return 0;
}
