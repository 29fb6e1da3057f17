#include "checkpoint/kept_checkpoints.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/atomic_files.h"
#include "base/file_calls.h"
#include "base/parse_number.h"
#include "base/regular_file.h"
#include "base/sha256.h"
#include "base/strict_json.h"
#include "base/unfinished_files.h"
#include "checkpoint/machine_checkpoints.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/manifest.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

// A number and the ending of an unfinished folder follow, so everything that lists folders ignores
// it. remove_abandoned() takes it for an unfinished folder of `state.kept-1` and not of `state`, so
// it does not delete it.
constexpr const char* kKept = ".kept-";

// The parts of the name of a hidden folder.
struct HiddenName {
  std::string target, writer;
};

// Returns the parts of the name `.TARGET.kept-N.partial-WRITER`.
std::optional<HiddenName> parse_kept(const fs::path& path) {
  const std::string name = path.filename().string();
  const std::size_t kept = name.rfind(kKept), partial = name.rfind(kPartial);
  if (kept == std::string::npos || partial == std::string::npos) return std::nullopt;
  const std::size_t number = kept + std::string_view(kKept).size();
  if (kept < 2 || partial < number || !is_partial(path)) return std::nullopt;
  if (!parse_number<std::uint64_t>(name.substr(number, partial - number))) return std::nullopt;
  return HiddenName{.target = name.substr(1, kept - 1),
                    .writer = name.substr(partial + std::string_view(kPartial).size())};
}

// Returns the parts of the name `.TARGET.replaced-WRITER`.
std::optional<HiddenName> parse_replaced(const fs::path& path) {
  const std::string name = path.filename().string();
  const std::size_t replaced = name.rfind(kReplaced);
  if (replaced == std::string::npos || replaced < 2 || !is_partial(path)) return std::nullopt;
  return HiddenName{.target = name.substr(1, replaced - 1),
                    .writer = name.substr(replaced + std::string_view(kReplaced).size())};
}

std::string unfinished_name(const std::string& target, const std::string& writer) {
  return str('.', target, kPartial, writer);
}

// Returns an unused path for a folder that this writer keeps.
fs::path unused_kept_path(const fs::path& folder, const HiddenName& name) {
  for (int n = 1;; ++n) {
    fs::path path = folder / unfinished_name(str(name.target, kKept, n), name.writer);
    std::error_code unknown;
    if (!fs::exists(fs::symlink_status(path, unknown))) return path;
  }
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::end(it);
       it.increment(error))
    entries.push_back(it->path());
  std::sort(entries.begin(), entries.end());
  return entries;
}

// Gives the kept folder the name of an unfinished one, so that later saves delete what a killed
// process leaves of it, and deletes it.
void remove_kept(const KeptCheckpoint& kept, const std::string& writer) {
  const fs::path folder = parent_folder(kept.path);
  const fs::path renamed = folder / unfinished_name(kept.target.filename().string(), writer);
  remove_all_quietly(renamed);
  if (::rename(kept.path.c_str(), renamed.c_str()) != 0) return;
  try {
    sync_directory(folder);  // or a power failure could leave a part of it under the old name
  } catch (const IoError&) {
    return;
  }
  remove_all_quietly(renamed);
}

}  // namespace

std::string id_in_machine_file(const fs::path& folder) {
  // To open a pipe would wait for a writer.
  if (kind_unless_regular(folder / kMachineFile) != nullptr) return "";
  const auto json = read_json_or_discard<nlohmann::json>(folder / kMachineFile);
  if (!json.is_object() || !json.contains("save") || !json["save"].is_string()) return "";
  return json["save"].get<std::string>();
}

std::string save_of(const fs::path& checkpoint) {
  const fs::path manifest = checkpoint / kManifestFile;
  if (!path_exists(manifest) || kind_unless_regular(manifest) != nullptr) return "";
  if (!path_exists(checkpoint / kMachineFile)) return sha256_of_text(read_file(manifest));
  return id_in_machine_file(checkpoint);
}

void publish_and_keep(StagedDirectory& staged) {
  const std::string target = staged.target().filename().string();
  const std::string writer =
      staged.path().filename().string().substr(unfinished_name(target, "").size());
  staged.commit_and_keep(unused_kept_path(parent_folder(staged.target()), {target, writer}));
}

std::vector<KeptCheckpoint> kept_checkpoints(
    const fs::path& folder, const std::function<bool(const std::string& target)>& is_target) {
  std::vector<KeptCheckpoint> found;
  for (const fs::path& path : entries_of(folder)) {
    const auto name = parse_kept(path);
    std::error_code unknown;
    if (!name || !is_target(name->target) || !fs::is_directory(path, unknown)) continue;
    found.push_back({.path = path, .target = folder / name->target});
  }
  return found;
}

bool give_name_to_save(const fs::path& target, const std::string& save) {
  if (save_of(target) == save) return true;
  const fs::path folder = parent_folder(target);
  for (const KeptCheckpoint& kept : kept_checkpoints(
           folder, [&](const std::string& name) { return name == target.filename(); })) {
    if (save_of(kept.path) != save) continue;
    std::error_code unknown;
    if (fs::exists(fs::symlink_status(target, unknown))) {
      swap_folders(kept.path, target);
    } else if (::rename(kept.path.c_str(), target.c_str()) != 0) {
      throw_file_error("io.rename", "cannot rename to", target, errno);
    }
    sync_directory(folder);
    return true;
  }
  return false;
}

void keep_replaced_checkpoints(const fs::path& folder,
                               const std::function<bool(const std::string& target)>& is_target) {
  for (const fs::path& path : entries_of(folder)) {
    const auto name = parse_replaced(path);
    if (!name || !is_target(name->target)) continue;
    std::error_code unknown;
    if (!fs::exists(folder / name->target / kMachineFile, unknown)) continue;
    ::rename(path.c_str(), unused_kept_path(folder, *name).c_str());
  }
}

void remove_kept_checkpoints(const fs::path& folder,
                             const std::function<bool(const std::string& target)>& is_target,
                             const std::function<bool(const KeptCheckpoint&)>& is_obsolete) {
  for (const KeptCheckpoint& kept : kept_checkpoints(folder, is_target)) {
    const auto name = parse_kept(kept.path);
    if (name && is_obsolete(kept)) remove_kept(kept, name->writer);
  }
}

}  // namespace hasten
