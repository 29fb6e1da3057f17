// File: hasten/checkpoint/checkpoint_folders.h
// The checkpoints of a run: the folders `checkpoint-N` under its output_dir, N being the step.
//
//   for (const fs::path& folder : checkpoints("out")) ...
//   fs::path newest = last_checkpoint("out");
//
// All folders of that name belong to one line of training: each was written by a run that began at
// step 0 or resumed from one of those before it. When a run resumes from an earlier checkpoint than
// the newest, its first save renames the later ones to `abandoned-checkpoint-N`
// (abandon_checkpoints_after). So the highest step is always the newest, and what was given up is
// never resumed from by itself. Thread rule: one process changes the folders of an output_dir at a
// time. Throws IoError "io.*".
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace hasten {

// By ascending step.
std::vector<std::filesystem::path> checkpoints(const std::filesystem::path& output_dir);
// The one with the highest step that is complete; empty path: none. Folders are written aside and
// renamed once, so one that carries the name is whole.
std::filesystem::path last_checkpoint(const std::filesystem::path& output_dir);
// The step in the name of a folder `checkpoint-N`; -1 for another name.
std::int64_t step_of_checkpoint(const std::filesystem::path& folder);

// Those that a run has left behind by resuming from an earlier step, the lowest step first.
std::vector<std::filesystem::path> abandoned_checkpoints(const std::filesystem::path& output_dir);
// Renames the checkpoints of later steps than `step` to `abandoned-checkpoint-N`, with `.2` and so
// on where there is one already. The latest goes first, so that a crash in between leaves no gap.
void abandon_checkpoints_after(const std::filesystem::path& output_dir, std::int64_t step);

// Deletes abandoned checkpoints and then the oldest of the others until `limit` remain of both
// together; never the newest, and never `keep`.
void rotate_checkpoints(const std::filesystem::path& output_dir, std::int64_t limit,
                        const std::filesystem::path& keep);

// Deletes what killed processes left of checkpoints and of models that they were writing
// (is_abandoned in hasten/base/files.h).
void remove_unfinished_saves(const std::filesystem::path& output_dir);

}  // namespace hasten
