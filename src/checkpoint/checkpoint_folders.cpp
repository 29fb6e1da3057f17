#include "hasten/checkpoint/checkpoint_folders.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/file_calls.h"
#include "base/parse_number.h"
#include "base/regular_file.h"
#include "base/unfinished_files.h"
#include "base/written_files.h"
#include "checkpoint/damaged_checkpoint.h"
#include "checkpoint/kept_checkpoints.h"
#include "checkpoint/machine_checkpoints.h"
#include "formats/model_files.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/manifest.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAbandoned = "abandoned-";
constexpr const char* kDamaged = ".damaged";

// Returns the number after the prefix, up to `end`, or -1 for a name of another form.
std::int64_t number_after_prefix(const std::string& name, const std::string& prefix,
                                 char end = '\0') {
  if (!starts_with(name, prefix)) return -1;
  const std::string rest = name.substr(prefix.size());
  const std::string digits = end == '\0' ? rest : rest.substr(0, rest.find(end));
  const auto number = parse_number<std::uint64_t>(digits);
  return number && digits.size() < 19 ? static_cast<std::int64_t>(*number) : -1;
}

std::int64_t abandoned_step(const fs::path& folder, const std::string& prefix) {
  return number_after_prefix(folder.filename().string(), kAbandoned + prefix, '.');
}

// Returns whether the entry is a folder. Throws if the system cannot tell. A file that was deleted
// meanwhile and a link that leads nowhere are no folders.
bool is_folder(const fs::directory_entry& entry) {
  std::error_code error;
  const bool is_directory = entry.is_directory(error);
  if (error && error != std::errc::no_such_file_or_directory &&
      error != std::errc::not_a_directory && error != std::errc::too_many_symbolic_link_levels)
    throw_file_error("io.open", "cannot look up", entry.path(), error.value());
  return is_directory;
}

// Throws if the folder exists and cannot be listed, because a run that sees no checkpoints would
// start from the beginning.
template <class StepOf>
std::vector<fs::path> folders_by_step(const fs::path& output_dir, StepOf step_of_folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (auto it = fs::directory_iterator(output_dir, error); !error && it != fs::end(it);
       it.increment(error)) {
    if (step_of_folder(it->path()) >= 0 && is_folder(*it)) found.push_back(it->path());
  }
  const bool exists =
      error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory;
  if (error && exists) {
    throw IoError("io.open", {.what = "cannot list the folder " + output_dir.string(),
                              .got = error.message(),
                              .hint = "check its permissions, and the limit of open files "
                                      "(ulimit -n)"});
  }
  std::sort(found.begin(), found.end(), [&](const fs::path& a, const fs::path& b) {
    return std::pair(step_of_folder(a), a) < std::pair(step_of_folder(b), b);
  });
  return found;
}

// Returns the name, or the name with `.2` and so on if it is taken.
fs::path unused_name(const fs::path& wanted) {
  fs::path name = wanted;
  std::error_code unknown;
  for (int n = 2; fs::exists(fs::symlink_status(name, unknown)); ++n)
    name = wanted.string() + str('.', n);
  return name;
}

// Renames what is damaged, and returns what happened to it, as the predicate of a sentence.
std::string rename_damaged(const fs::path& path) {
  const fs::path name = unused_name(path.string() + kDamaged);
  std::error_code error;
  fs::rename(path, name, error);
  if (error) return "could not be renamed (" + error.message() + ")";
  sync_directory(parent_folder(path));
  return "has been renamed to " + name.filename().string();
}

// Identifies the folder that has a name now.
struct FolderIdentity {
  dev_t device;
  ino_t number;
  std::string manifest;  // its text, or an empty one if it cannot be read
  bool operator==(const FolderIdentity&) const = default;
};

// Returns nothing if there is no such folder.
std::optional<FolderIdentity> identity_of(const fs::path& folder) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) return std::nullopt;
  FolderIdentity identity{.device = status.st_dev, .number = status.st_ino, .manifest = ""};
  // To open a pipe would wait for a writer.
  if (kind_unless_regular(folder / kManifestFile) != nullptr) return identity;
  try {
    identity.manifest = read_file(folder / kManifestFile);
  } catch (const IoError&) {
    return identity;
  }
  return identity;
}

// True if another process has deleted, renamed or replaced the folder since.
bool has_changed(const fs::path& folder, const std::optional<FolderIdentity>& before) {
  const auto now = identity_of(folder);
  return !now || now != before;
}

using DamageHandler = std::function<void(const fs::path& folder, const Error& error)>;

// Returns the newest of these checkpoints that passes verification, and calls `on_damage` for each
// newer one that fails. Returns nothing if another process has deleted or replaced a checkpoint
// meanwhile, and so may have saved a newer one; it does not look for this if `is_last_try` is true.
std::optional<fs::path> newest_verified_of(std::vector<fs::path> found, bool is_last_try,
                                           const DamageHandler& on_damage) {
  for (; !found.empty(); found.pop_back()) {
    const fs::path folder = found.back();
    const auto before = identity_of(folder);
    try {
      verify_checkpoint(folder);
      return folder;
    } catch (const Error& error) {
      if (!is_last_try && has_changed(folder, before)) return std::nullopt;
      if (!is_damage_error(error)) rethrow_unused_checkpoint(folder, error);
      on_damage(folder, error);
    }
  }
  return fs::path();
}

// Returns the newest checkpoint that `list` returns and that passes verification, or an empty path.
// Lists them again if another process that saves has deleted one meanwhile.
fs::path newest_verified(const std::function<std::vector<fs::path>()>& list,
                         const DamageHandler& on_damage) {
  constexpr int kMaxTries = 10;
  for (int tries = 1;; ++tries) {
    const auto newest = newest_verified_of(list(), tries == kMaxTries, on_damage);
    if (newest) return *newest;
  }
}

// Deletes what killed processes have left of the checkpoints with these names. A kept one may be
// needed as long as its machine has a checkpoint of this name (newest_common_checkpoint).
void remove_unfinished(const fs::path& folder,
                       const std::function<bool(const std::string& target)>& is_target) {
  keep_replaced_checkpoints(folder, is_target);
  remove_abandoned(folder, is_target);
  remove_kept_checkpoints(folder, is_target, [](const KeptCheckpoint& kept) {
    std::error_code unknown;
    return is_abandoned(kept.path) &&
           fs::symlink_status(kept.target, unknown).type() == fs::file_type::not_found;
  });
}

void check_replaceable(const fs::path& target) {
  std::error_code error;
  if (!fs::exists(target, error) || fs::exists(target / kManifestFile, error)) return;
  if (fs::is_directory(target, error) && fs::is_empty(target, error)) return;
  throw UsageError("checkpoint.not-a-checkpoint",
                   {.what = target.string(),
                    .got = fs::is_directory(target, error) ? "a folder with other files" : "a file",
                    .expected = "a new folder, or a checkpoint to replace",
                    .hint = "a checkpoint needs its own folder: choose a new one"});
}

// Deletes the unfinished saves that killed processes left next to the target, and returns the
// target.
fs::path prepare_target(const fs::path& given, const std::string& prefix) {
  fs::path target = without_last_slash(given);
  restore_replaced_folder(target);
  check_replaceable(target);
  remove_unfinished_saves(parent_folder(target), prefix);
  remove_unfinished_saves_of(target);
  return target;
}

}  // namespace

CheckpointSave::CheckpointSave(const fs::path& target, std::string prefix)
    : prefix_(std::move(prefix)), staged_(prepare_target(target, prefix_)) {
  record_written_files(staged_.path());
}

void CheckpointSave::commit(const CheckpointRotation& rotation) {
  publish(rotation);
  rotate(rotation);
}

void CheckpointSave::publish(const CheckpointRotation& rotation) {
  write_manifest(staged_.path());
  // Renames later checkpoints first, so that the highest step is never an abandoned one.
  if (rotation.abandon_after)
    abandon_checkpoints_after(parent_folder(staged_.target()), *rotation.abandon_after, prefix_);
  if (!path_exists(staged_.path() / kMachineFile)) return staged_.commit(OverwritePolicy::replace);
  save_ = id_in_machine_file(staged_.path());
  publish_and_keep(staged_);
}

void CheckpointSave::rotate(const CheckpointRotation& rotation) const {
  remove_kept();
  rotate_checkpoints(parent_folder(staged_.target()), rotation, prefix_);
}

// Deletes the checkpoints that this machine has kept until every machine had the new one.
void CheckpointSave::remove_kept() const {
  const fs::path& target = staged_.target();
  try {
    // Another program that loads meanwhile may have given the old one its name back.
    if (!save_.empty() && !give_name_to_save(target, save_)) return;
  } catch (const IoError&) {  // the new checkpoint is saved; a later save deletes the old ones
    return;
  }
  const auto is_target = [&](const std::string& name) {
    return name == target.filename() || step_of_checkpoint(name, prefix_) >= 0;
  };
  remove_kept_checkpoints(parent_folder(target), is_target,
                          [](const KeptCheckpoint&) { return true; });
}

std::int64_t step_of_checkpoint(const fs::path& folder, const std::string& prefix) {
  return number_after_prefix(folder.filename().string(), prefix);
}

std::vector<fs::path> checkpoints(const fs::path& output_dir, const std::string& prefix) {
  restore_replaced_folders(output_dir, [&](const std::string& target) {
    return step_of_checkpoint(target, prefix) >= 0;
  });
  return folders_by_step(output_dir,
                         [&](const fs::path& each) { return step_of_checkpoint(each, prefix); });
}

std::vector<fs::path> abandoned_checkpoints(const fs::path& output_dir, const std::string& prefix) {
  return folders_by_step(output_dir,
                         [&](const fs::path& each) { return abandoned_step(each, prefix); });
}

fs::path last_checkpoint(const fs::path& output_dir, const std::string& prefix) {
  return newest_verified([&] { return checkpoints(output_dir, prefix); },
                         [](const fs::path&, const Error&) {});
}

fs::path recover_last_checkpoint(const fs::path& output_dir,
                                 const std::function<void(const std::string&)>& report,
                                 const std::string& prefix,
                                 const std::function<bool(const fs::path&)>& accepts) {
  remove_unfinished_saves(output_dir, prefix);
  const auto list = [&] {
    auto found = checkpoints(output_dir, prefix);
    if (accepts) std::erase_if(found, [&](const fs::path& each) { return !accepts(each); });
    return found;
  };
  return newest_verified(list, [&](const fs::path& folder, const Error& error) {
    report(rename_damaged_checkpoint(folder, error));
  });
}

bool is_damage_error(const Error& error) {
  return dynamic_cast<const DataError*>(&error) != nullptr &&
         error.code() != "checkpoint.newer-version";
}

void rethrow_unused_checkpoint(const fs::path& folder, const Error& error) {
  if (dynamic_cast<const IoError*>(&error) == nullptr) throw;
  ErrorText text = error.text();
  text.hint += str(text.hint.empty() ? "" : "; ", "the checkpoint ", folder.string(),
                   " may be whole, so it keeps its name: start the run again when the file can be "
                   "read. If it stays unreadable, move this folder elsewhere: the run then "
                   "continues without it");
  throw IoError(error.code(), std::move(text));
}

std::string set_aside_damaged(const std::string& what, const fs::path& path, const Error& error) {
  const ErrorText& text = error.text();
  return str("the ", what, ' ', path.string(), " cannot be used and ", rename_damaged(path), "; ",
             text.what, ": got ", text.got,
             text.expected.empty() ? "" : ", expected " + text.expected);
}

std::string rename_damaged_checkpoint(const fs::path& folder, const Error& error) {
  return set_aside_damaged("checkpoint", folder, error);
}

std::vector<fs::path> damaged_checkpoints(const fs::path& output_dir, const std::string& prefix) {
  const auto number_of_damaged = [&](const fs::path& each) -> std::int64_t {
    const fs::path name = each.filename();
    if (name.string().find(kDamaged) == std::string::npos) return -1;
    return number_after_prefix(name.string(), prefix, '.');
  };
  return folders_by_step(output_dir, number_of_damaged);
}

void abandon_checkpoints_after(const fs::path& output_dir, std::int64_t step,
                               const std::string& prefix) {
  const auto found = checkpoints(output_dir, prefix);
  for (auto it = found.rbegin(); it != found.rend() && step_of_checkpoint(*it, prefix) > step;
       ++it) {
    std::error_code error;
    const fs::path name =
        unused_name(output_dir / (kAbandoned + prefix + str(step_of_checkpoint(*it, prefix))));
    fs::rename(*it, name, error);
    // The main process of another machine may have renamed it already.
    if (error && error != std::errc::no_such_file_or_directory) {
      throw IoError(
          "io.rename",
          {.what = str("cannot rename ", it->string(), " to ", name.filename().string()),
           .got = error.message(),
           .hint = str("move or delete ", it->string(),
                       ", perhaps as its owner: it is a checkpoint of a later step than the one "
                       "that this run resumes from, and no checkpoint of this run is saved while "
                       "it is there")});
    }
  }
}

void rotate_checkpoints(const fs::path& output_dir, const CheckpointRotation& rotation,
                        const std::string& prefix) {
  if (!rotation.limit) return;
  std::vector<fs::path> oldest_first, current;
  try {
    oldest_first = abandoned_checkpoints(output_dir, prefix);
    current = checkpoints(output_dir, prefix);
  } catch (const IoError&) {  // the new checkpoint is saved; a later save deletes the old ones
    return;
  }
  const fs::path newest = current.empty() ? fs::path() : current.back();
  std::erase_if(current, [&](const fs::path& folder) {
    return rotation.keep_every > 0 && step_of_checkpoint(folder, prefix) % rotation.keep_every == 0;
  });
  oldest_first.insert(oldest_first.end(), current.begin(), current.end());
  std::int64_t excess = static_cast<std::int64_t>(oldest_first.size()) - *rotation.limit;
  for (const fs::path& folder : oldest_first) {
    if (excess <= 0) return;
    std::error_code error;
    if (folder == newest || folder == rotation.keep || fs::equivalent(folder, rotation.keep, error))
      continue;
    --excess;
    try {
      remove_directory(folder);
    } catch (const IoError&) {  // a folder that cannot be deleted does not end the run
    }
  }
}

void remove_unfinished_saves(const fs::path& output_dir, const std::string& prefix) {
  remove_unfinished(output_dir, [&](const std::string& target) {
    const bool abandoned = abandoned_step(target, prefix) >= 0;
    return step_of_checkpoint(target, prefix) >= 0 || abandoned || target == kStagedModel;
  });
}

void remove_unfinished_saves_of(const fs::path& given) {
  const fs::path target = without_last_slash(given);
  remove_unfinished(parent_folder(target),
                    [&](const std::string& name) { return name == target.filename(); });
}

}  // namespace hasten
