#include "exported/exported_parts.h"

#include <algorithm>

#include "exported/program_reader.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/exported/operator_library.h"

namespace hasten {
namespace {

// Returns the programs to be used, the one for training first.
std::vector<std::string> chosen_programs(const ZipArchive& archive) {
  const std::vector<std::string> names = exported::program_names(archive);
  const auto has = [&](const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (names.size() == 1) return names;
  for (const char* const training : {"train", "model"})
    if (names.size() == 2 && has(training) && has("eval")) return {training, "eval"};
  throw DataError("exported.program",
                  {.what = archive.file() + ": the programs of the file",
                   .got = join(names, ", "),
                   .expected = "one program, or \"train\" (or \"model\") and \"eval\""});
}

std::vector<std::string> allowed_namespaces(const ExportedOptions& options) {
  std::vector<std::string> names = options.operator_namespaces;
  for (const std::filesystem::path& library : options.libraries)
    for (std::string& name : load_operator_library(library)) names.push_back(std::move(name));
  return names;
}

}  // namespace

ExportedModule::Parts::Parts(const std::filesystem::path& path, const ExportedOptions& options,
                             at::Device device)
    : archive(path), device(device) {
  const std::vector<std::string> namespaces = allowed_namespaces(options);
  for (const std::string& name : chosen_programs(archive)) {
    programs.push_back(exported::read_program(archive, name, namespaces));
    weights.push_back(exported::read_payloads(archive, "data/weights/", name));
    constants.push_back(exported::read_payloads(archive, "data/constants/", name));
  }
  check_same_state();
}

// Both programs compute with the same parameters and buffers.
void ExportedModule::Parts::check_same_state() const {
  for (std::size_t other = 1; other < weights.size(); ++other) {
    for (const exported::Payload& payload : weights[other]) {
      const auto found = std::find_if(weights[0].begin(), weights[0].end(), [&](const auto& first) {
        return first.name == payload.name && first.sizes == payload.sizes &&
               first.dtype == payload.dtype;
      });
      if (found != weights[0].end()) continue;
      throw DataError("exported.program",
                      {.what = archive.file() + ": the tensor " + payload.name,
                       .got = "another shape or type in the program " + programs[other]->name,
                       .expected = "programs of the same model"});
    }
  }
}

}  // namespace hasten
