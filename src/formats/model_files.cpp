#include "formats/model_files.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/file_calls.h"
#include "base/sync_tree.h"
#include "formats/model_manifest.h"
#include "hasten/base/files.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

// Readers open one of these files first.
constexpr const char* kEntryFiles[] = {kSingleFileName, kIndexFileName, kAdapterFileName};

bool is_entry_file(const std::string& name) {
  return std::find(std::begin(kEntryFiles), std::end(kEntryFiles), name) != std::end(kEntryFiles);
}

// True for names such as model-00001-of-00002.safetensors.
bool is_shard(const std::string& name) {
  static constexpr std::string_view pattern = "model-00000-of-00000.safetensors";
  if (name.size() != pattern.size()) return false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const bool digit = name[i] >= '0' && name[i] <= '9';
    if (pattern[i] == '0' ? !digit : name[i] != pattern[i]) return false;
  }
  return true;
}

// Returns whether readers of the folder's current model would find a different file under this
// name. Shards are large and differ after each step, so they are not compared.
bool file_changes(const fs::path& staged, const fs::path& folder, const std::string& name) {
  if (!path_exists(folder / name)) return false;
  return is_shard(name) || read_file(folder / name) != read_file(staged / name);
}

}  // namespace

bool has_weights(const fs::path& folder) {
  return std::any_of(std::begin(kEntryFiles), std::end(kEntryFiles),
                     [&](const char* name) { return path_exists(folder / name); });
}

std::set<std::string> names_of_weights(const fs::path& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (is_entry_file(name) || is_shard(name)) names.insert(name);
  }
  return names;
}

void remove_stale_files(const fs::path& folder, const std::set<std::string>& written) {
  for (const std::string& name : names_of_weights(folder)) {
    std::error_code ignored;
    if (!written.contains(name)) fs::remove(folder / name, ignored);
  }
}

void move_model_files(const fs::path& staged, const fs::path& folder) {
  const bool has_manifest = !is_partial(folder);
  FileRecords records;
  if (has_manifest) records = records_of_weights(staged);
  sync_tree(staged);  // Before any file of the old model is deleted.
  if (has_manifest) remove_model_manifest(folder);
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(staged))
    names.insert(entry.path().filename().string());
  // Readers open this file first, so it is moved last.
  const std::string entry_file = names.contains(kSingleFileName)    ? kSingleFileName
                                 : names.contains(kAdapterFileName) ? kAdapterFileName
                                                                    : kIndexFileName;
  std::vector<std::string> moved;
  bool would_mix_models = false;
  for (const std::string& name : names) {
    if (name == entry_file) continue;
    moved.push_back(name);
    would_mix_models =
        would_mix_models || (name != "training_args.json" && file_changes(staged, folder, name));
  }
  if (would_mix_models) {
    for (const char* const name : kEntryFiles) fs::remove(folder / name);
  }
  move_files(staged, folder, moved);
  if (names.contains(entry_file)) move_files(staged, folder, {entry_file});
  remove_stale_files(folder, names);
  if (has_manifest) write_model_manifest(folder, records);
}

}  // namespace hasten
