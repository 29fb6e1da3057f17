// File: checkpoint/machine_checkpoints.h (internal)
// Checkpoints of a job whose machines share no folder (save_on_each_node): the first process of
// each machine writes a whole checkpoint to its own disk, and all continue from one save.
//
//   require_separate_folders(group, writes, output_dir);
//   const std::string staged = path_of_writer(group, writes ? own.path().string() : "");
//   if (writes) write_machine_file(staged, save_id);             // save_id: new_save_id(group)
//   const fs::path from = newest_common_checkpoint(group, writes, output_dir, prefix, report);
//
// Each save has a number that is drawn at random, so that folders of one step from two runs are not
// taken for one checkpoint. A checkpoint without it counts as the same as its copies. All functions
// but write_machine_file are collectives, and every process throws the same error: DataError
// "checkpoint.missing-on-machine", ConfigError "checkpoint.shared-folder", and what
// hasten/checkpoint/checkpoint_folders.h throws. Thread rule: that of the group's collectives.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "hasten/process/group.h"

namespace hasten {

inline constexpr const char* kMachineFile = "machine.json";

// Returns the path of the process that writes for this one: one of its host whose own path is not
// empty or, without one, the last rank up to this one. Rank 0 has a path. The ranks of a host need
// not follow each other: Slurm deals them out in turn with --distribution=cyclic.
std::string path_of_writer(const Group& group, const std::string& own);
// The same for a host of this name.
std::string path_of_writer(const Group& group, const std::string& own, const std::string& host);

// Throws unless each process that writes has a folder of its own.
void require_separate_folders(const Group& group, bool writes, const std::filesystem::path& folder);

std::string new_save_id(const Group& group);
void write_machine_file(const std::filesystem::path& checkpoint, const std::string& save_id);

// Returns the newest checkpoint that is whole on every machine; an empty path if no machine has
// one. Damaged ones are set aside and reported, and so is a newer one that a machine lacks. With
// `accepts`, only the checkpoints for which it is true count.
std::filesystem::path newest_common_checkpoint(
    const Group& group, bool writes, const std::filesystem::path& output_dir,
    const std::string& prefix, const std::function<void(const std::string&)>& report,
    const std::function<bool(const std::filesystem::path&)>& accepts = {});

// Verifies a folder that the caller has named on every machine, and returns the one of this
// machine.
std::filesystem::path common_checkpoint(const Group& group, bool writes,
                                        const std::filesystem::path& folder);

}  // namespace hasten
