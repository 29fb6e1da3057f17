// File: hasten/checkpoint/checkpoint_folders.h
// The checkpoints of a run: the folders `checkpoint-N` in its output_dir, where N is the step. This
// is the only way in which hasten writes, finds and deletes checkpoints (docs/durability.md).
//
//   CheckpointSave save("out/checkpoint-500");                // makes a hidden folder beside it
//   write_file_atomically(save.path() / "state.json", "{}");
//   save.commit({.limit = 3});                                // manifest, fsync, one rename, rotation
//
//   for (const std::filesystem::path& folder : checkpoints("out")) std::puts(folder.c_str());
//   const std::filesystem::path newest = last_checkpoint("out");   // complete and verified
//
// All folders of that name belong to one sequence of runs: each was written by a run that began at
// step 0 or resumed from one of the earlier ones. When a run resumes from a checkpoint that is not
// the newest, its first save renames the later ones to `abandoned-checkpoint-N`
// (abandon_checkpoints_after). So the highest step is always the newest checkpoint, and no run
// resumes from an abandoned one by itself. A damaged checkpoint is renamed to
// `checkpoint-N.damaged` by the run that finds it, and hasten never deletes it. `prefix` is the
// part of the name before the number. Thread rule: one process at a time changes the folders
// of an output_dir. Throws IoError "io.*", and what hasten/checkpoint/manifest.h throws.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/base/files.h"

namespace hasten {

// The Trainer names its checkpoints checkpoint-STEP, and an Accelerator's project names its
// checkpoints checkpoint_NUMBER.
inline constexpr const char* kCheckpointPrefix = "checkpoint-";
inline constexpr const char* kProjectPrefix = "checkpoint_";
// A run with --hash_chain_steps writes its hashes (hasten/checkpoint/hash_chain.h) and its options
// to these files in output_dir.
inline constexpr const char* kHashChainFile = "hash_chain.jsonl";
inline constexpr const char* kHashChainConfigFile = "hash_chain_config.yaml";

// Selects the other checkpoints that remain after a new one has been saved.
struct CheckpointRotation {
  // The maximum number of checkpoints that remain, not counting those of keep_every. If unset, all
  // remain.
  std::optional<std::int64_t> limit = std::nullopt;
  // A checkpoint that stays in addition to them, such as the best one.
  std::filesystem::path keep = {};
  // Checkpoints with a step that is a multiple of this number are never deleted; 0 turns this off.
  std::int64_t keep_every = 0;
  // Renames the checkpoints of steps after this one before the new checkpoint appears.
  std::optional<std::int64_t> abandon_after = std::nullopt;
};

// A checkpoint that appears complete or not at all.
class HASTEN_API CheckpointSave {
 public:
  // Deletes what killed processes have left next to `target`, and creates a hidden folder to write
  // to. If `target` is one of a series, its name is `prefix` and a number. Throws UsageError
  // "checkpoint.not-a-checkpoint" if `target` contains files that do not belong to a checkpoint,
  // because commit() would delete them.
  explicit CheckpointSave(const std::filesystem::path& target,
                          std::string prefix = kCheckpointPrefix);

  // The folder to write to until commit().
  const std::filesystem::path& path() const { return staged_.path(); }
  // Writes the manifest, syncs everything, and gives the folder its name, in place of an older
  // checkpoint of this name. Then deletes old checkpoints as `rotation` says. If it throws before
  // the folder has its name, the other checkpoints are unchanged, apart from abandoned ones.
  void commit(const CheckpointRotation& rotation = {});
  // The two halves of commit(): publish() ends with the rename, and rotate() deletes old
  // checkpoints. Machines that have their own folders call rotate() when all of them have the new
  // checkpoint. If path() has a machine.json, publish() does not delete an older checkpoint of this
  // name but keeps it under a hidden name until rotate().
  void publish(const CheckpointRotation& rotation = {});
  void rotate(const CheckpointRotation& rotation) const;

 private:
  void remove_kept() const;

  std::string prefix_;
  StagedDirectory staged_;
  std::string save_;  // the identifier in machine.json, once publish() has been called
};

// The folders `checkpoint-N`, by ascending step. If a process was killed while it replaced one of
// them, on a file system that cannot swap two folders, the old one gets its name back first. Throws
// IoError "io.open" if they cannot be listed.
HASTEN_API std::vector<std::filesystem::path> checkpoints(
    const std::filesystem::path& output_dir, const std::string& prefix = kCheckpointPrefix);
// The checkpoint with the highest step that is complete and verified (verify_checkpoint); an empty
// path if there is none. Changes nothing else than checkpoints() does. Another process may save and
// delete checkpoints meanwhile.
HASTEN_API std::filesystem::path last_checkpoint(const std::filesystem::path& output_dir,
                                                 const std::string& prefix = kCheckpointPrefix);
// Does the same for a run that resumes. Before it finds that checkpoint, it renames each damaged
// checkpoint to `checkpoint-N.damaged`, with `.2` and so on, and passes `report` a sentence that
// names the file. It throws for a checkpoint of a newer version (DataError
// "checkpoint.newer-version") and if files cannot be opened (IoError "io.open"). If `accepts` is
// given, only checkpoints for which it returns true count. A checkpoint that another process
// deletes or replaces meanwhile does not count as damaged: the checkpoints are listed again.
HASTEN_API std::filesystem::path recover_last_checkpoint(
    const std::filesystem::path& output_dir, const std::function<void(const std::string&)>& report,
    const std::string& prefix = kCheckpointPrefix,
    const std::function<bool(const std::filesystem::path&)>& accepts = {});
// The damaged checkpoints that have been renamed there, by ascending step.
HASTEN_API std::vector<std::filesystem::path> damaged_checkpoints(
    const std::filesystem::path& output_dir, const std::string& prefix = kCheckpointPrefix);
// The step in the name of a folder `checkpoint-N`; -1 for any other name.
HASTEN_API std::int64_t step_of_checkpoint(const std::filesystem::path& folder,
                                           const std::string& prefix = kCheckpointPrefix);

// The folders `abandoned-checkpoint-N`, by ascending step.
HASTEN_API std::vector<std::filesystem::path> abandoned_checkpoints(
    const std::filesystem::path& output_dir, const std::string& prefix = kCheckpointPrefix);
// Renames the checkpoints of steps after `step` to `abandoned-checkpoint-N`, with `.2` and so on if
// there already is one. The latest is renamed first, so that a crash leaves no gap.
HASTEN_API void abandon_checkpoints_after(const std::filesystem::path& output_dir,
                                          std::int64_t step,
                                          const std::string& prefix = kCheckpointPrefix);

// Deletes abandoned checkpoints, and then the oldest other checkpoints, until `rotation.limit` of
// them remain in total, not counting those of `rotation.keep_every`. It never deletes the newest
// checkpoint or `rotation.keep`. A folder that cannot be deleted is skipped. Does nothing without a
// limit.
HASTEN_API void rotate_checkpoints(const std::filesystem::path& output_dir,
                                   const CheckpointRotation& rotation,
                                   const std::string& prefix = kCheckpointPrefix);

// Deletes the incomplete checkpoints and models of processes that were killed while they wrote them
// (is_abandoned in hasten/base/files.h), and restores the name of a checkpoint that such a process
// was about to replace.
HASTEN_API void remove_unfinished_saves(const std::filesystem::path& output_dir,
                                        const std::string& prefix = kCheckpointPrefix);

// Does the same for the single folder `target`.
HASTEN_API void remove_unfinished_saves_of(const std::filesystem::path& target);

}  // namespace hasten
