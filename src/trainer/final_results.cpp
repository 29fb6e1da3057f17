#include "trainer/final_results.h"

#include <nlohmann/json.hpp>
#include <system_error>

#include "base/file_calls.h"
#include "base/strict_json.h"
#include "formats/manifest_file.h"
#include "formats/model_files.h"
#include "hasten/base/error.h"

namespace hasten {

bool has_metrics(const std::filesystem::path& folder, const std::string& split) {
  const std::filesystem::path all_file = folder / "all_results.json";
  if (!path_exists(folder / (split + "_results.json")) || !path_exists(all_file)) return false;
  std::error_code unknown;
  if (std::filesystem::is_directory(all_file, unknown)) return false;  // save_metrics reports it
  const auto all = read_json_or_discard(all_file);
  return all.is_object() && all.contains(split + "_runtime");  // each split has a runtime
}

bool has_weights_of(const std::filesystem::path& folder, const std::filesystem::path& checkpoint) {
  const auto names = names_of_weights(checkpoint);
  if (names != names_of_weights(folder)) return false;
  try {
    const FileRecords records = read_file_records(checkpoint, kCheckpointManifest);
    for (const std::string& name : names) {
      const auto record = records.find(name);
      if (record == records.end()) return false;
      verify_file(folder / name, record->second, kCheckpointManifest);
    }
  } catch (const DataError&) {
    return false;
  }
  return true;
}

}  // namespace hasten
