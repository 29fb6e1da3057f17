// File: trainer/final_results.h (internal)
// Finds out which files the end of a run has written to output_dir, for a run that continues at its
// last step: it may have been killed before it had saved its model or all results.
//
//   if (!has_weights_of("out", "out/checkpoint-500")) trainer.save_model();
//   if (!has_metrics("out", "eval")) trainer.save_metrics("eval", trainer.evaluate());
//
// The process that writes the files calls them. Thread rule: pure functions, apart from the files.
// Throws IoError "io.*".
#pragma once

#include <filesystem>
#include <string>

#include "base/internal_api.h"

namespace hasten {

// True if the folder has SPLIT_results.json, and all_results.json has its metrics as well.
HASTEN_INTERNAL_API bool has_metrics(const std::filesystem::path& folder, const std::string& split);
// True if the folder's files of weights are those that the checkpoint's manifest describes. Reads
// them as a whole.
HASTEN_INTERNAL_API bool has_weights_of(const std::filesystem::path& folder,
                                        const std::filesystem::path& checkpoint);

}  // namespace hasten
