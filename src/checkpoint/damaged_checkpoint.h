// File: checkpoint/damaged_checkpoint.h (internal)
// Distinguishes damaged checkpoints from errors of the system, and renames damaged files and
// checkpoints. Thread rule: any thread; one process at a time renames in a folder.
#pragma once

#include <filesystem>
#include <string>

#include "hasten/base/error.h"

namespace hasten {

// True if an error of verify_checkpoint() means that the files differ from those that were saved.
// Returns false for a checkpoint of a later version, and for an error of the system, such as too
// many open files or a file server that does not answer: a later attempt may succeed.
bool is_damage_error(const Error& error);

// Throws the error again that verify_checkpoint() has thrown, if it is not damage. Call it where
// the error was caught. The hint of an error of the system says what became of the checkpoint.
[[noreturn]] void rethrow_unused_checkpoint(const std::filesystem::path& folder,
                                            const Error& error);

// Renames a file or folder that cannot be used to `NAME.damaged`, with `.2` and so on if that name
// is taken, and returns a sentence that says why and where it is now. `what` is its kind, such as
// "hash chain". If it cannot be renamed, the sentence says so.
std::string set_aside_damaged(const std::string& what, const std::filesystem::path& path,
                              const Error& error);

// Renames a checkpoint that cannot be used to `checkpoint-N.damaged`, and returns a sentence that
// says why and where it is now. If it cannot be renamed, the run continues without it.
std::string rename_damaged_checkpoint(const std::filesystem::path& folder, const Error& error);

}  // namespace hasten
