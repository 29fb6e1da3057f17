// File: hasten/checkpoint/checkpoint_folders.h
// The checkpoints of a run: the folders `checkpoint-N` in its output_dir, where N is the step.
//
//   for (const std::filesystem::path& folder : checkpoints("out")) std::puts(folder.c_str());
//   const std::filesystem::path newest = last_checkpoint("out");
//
// All folders of that name belong to one sequence of runs: each was written by a run that began at
// step 0 or resumed from one of the earlier ones. When a run resumes from a checkpoint that is not
// the newest, its first save renames the later ones to `abandoned-checkpoint-N`
// (abandon_checkpoints_after). So the highest step is always the newest checkpoint, and no run
// resumes from an abandoned one by itself. Thread rule: one process at a time changes the folders
// of an output_dir. Throws IoError "io.*".
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace hasten {

// The folders `checkpoint-N`, by ascending step.
std::vector<std::filesystem::path> checkpoints(const std::filesystem::path& output_dir);
// The complete checkpoint with the highest step; an empty path if there is none. Checkpoints are
// written under another name and renamed once, so a folder of that name is complete.
std::filesystem::path last_checkpoint(const std::filesystem::path& output_dir);
// The step in the name of a folder `checkpoint-N`; -1 for another name.
std::int64_t step_of_checkpoint(const std::filesystem::path& folder);

// The folders `abandoned-checkpoint-N`, by ascending step.
std::vector<std::filesystem::path> abandoned_checkpoints(const std::filesystem::path& output_dir);
// Renames the checkpoints of later steps than `step` to `abandoned-checkpoint-N`, with `.2` and so
// on if there already is one. The latest is renamed first, so that a crash leaves no gap.
void abandon_checkpoints_after(const std::filesystem::path& output_dir, std::int64_t step);

// Deletes abandoned checkpoints and then the oldest of the others until `limit` of both together
// remain. It never deletes the newest, nor `keep`. A folder that cannot be deleted is skipped.
void rotate_checkpoints(const std::filesystem::path& output_dir, std::int64_t limit,
                        const std::filesystem::path& keep);

// Deletes the incomplete checkpoints and models of processes that were killed while they wrote them
// (is_abandoned in hasten/base/files.h).
void remove_unfinished_saves(const std::filesystem::path& output_dir);

}  // namespace hasten
