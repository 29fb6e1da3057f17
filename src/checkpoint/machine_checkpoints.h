// File: checkpoint/machine_checkpoints.h (internal)
// Checkpoints of a job whose machines share no folder (save_on_each_node). The first process of
// each machine writes a whole checkpoint to its own disk, and all machines resume from the same
// save.
//
//   require_separate_folders(group, writes, output_dir);
//   const std::string staged = path_of_writer(group, writes ? own.path().string() : "");
//   if (writes) write_machine_file(staged, save_id);             // save_id: new_save_id(group)
//   abandon_interrupted_first_save(group, writes, output_dir, prefix, report);
//   const fs::path from = newest_common_checkpoint(group, writes, output_dir, prefix, report);
//
// Each save has a random identifier, so that folders of the same step from two runs are not
// mistaken for one checkpoint. A checkpoint without an identifier counts as the same save as its
// copies. All functions except write_machine_file are collectives, and every process throws the
// same error: DataError "checkpoint.missing-on-machine", ConfigError "checkpoint.shared-folder",
// and the errors of hasten/checkpoint/checkpoint_folders.h. Thread rule: the thread of the group's
// collectives.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "hasten/process/group.h"

namespace hasten {

inline constexpr const char* kMachineFile = "machine.json";

// Returns the path of the process that writes for this one: a process of the same host that has a
// path or, if there is none, the last rank with a path up to this one. Rank 0 must have a path. The
// ranks of a host need not be consecutive: Slurm assigns them in turn with --distribution=cyclic.
std::string path_of_writer(const Group& group, const std::string& own);
// The same for a host of this name.
std::string path_of_writer(const Group& group, const std::string& own, const std::string& host);

// Throws unless each process that writes has its own folder.
void require_separate_folders(const Group& group, bool writes, const std::filesystem::path& folder);

std::string new_save_id(const Group& group);
void write_machine_file(const std::filesystem::path& checkpoint, const std::string& save_id);

// If the job was killed during its first save, some machines may have a checkpoint, and the others
// only an unfinished copy of it. This function gives such checkpoints the name of abandoned ones
// (hasten/checkpoint/checkpoint_folders.h), so that the job can start from the beginning. Call it
// before the unfinished copies are deleted, for example by newest_common_checkpoint.
void abandon_interrupted_first_save(const Group& group, bool writes,
                                    const std::filesystem::path& output_dir,
                                    const std::string& prefix,
                                    const std::function<void(const std::string&)>& report);

// Returns the newest checkpoint that is intact on every machine, or an empty path if no machine has
// one. Damaged checkpoints are renamed and reported. A newer checkpoint that a machine lacks is
// reported too. If `accepts` is set, only checkpoints for which it returns true count. A machine
// that has replaced the checkpoint by one that another machine lacks has kept it
// (checkpoint/kept_checkpoints.h), and gives it its name back.
std::filesystem::path newest_common_checkpoint(
    const Group& group, bool writes, const std::filesystem::path& output_dir,
    const std::string& prefix, const std::function<void(const std::string&)>& report,
    const std::function<bool(const std::filesystem::path&)>& accepts = {});

// Verifies a folder that the caller has named on every machine, and returns this machine's folder,
// without a slash at its end. A kept checkpoint gets its name back here too.
std::filesystem::path common_checkpoint(const Group& group, bool writes,
                                        const std::filesystem::path& folder);

}  // namespace hasten
