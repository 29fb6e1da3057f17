// File: hasten/machine/model_folder.h
// Finds a model by its name in the cache of the Hugging Face Hub on this machine. hasten downloads
// nothing.
//
//   model_folder("google-bert/bert-base-uncased");        // ".../snapshots/86b5e0934494..."
//   model_folder("google-bert/bert-base-uncased@v1.0");   // a branch, tag or commit
//   model_folder("path/to/folder");                       // "path/to/folder", if it exists
//
// The cache is $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub,
// $XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub, whichever is set first. In it,
// models--ORG--NAME/refs/REVISION holds the commit, and models--ORG--NAME/snapshots/COMMIT has the
// files, usually as links. The revision is "main" unless the name says otherwise.
//
// Throws IoError "models.not-cached" with the `hf download` command that fetches the model. Thread
// rule: no other thread changes the environment at the same time.
// Source: file_download.py and constants.py of huggingface_hub 2.4.
#pragma once

#include <filesystem>
#include <string>

#include "hasten/base/detail/export.h"
#include "hasten/options/detail/environment.h"

namespace hasten {

// Returns `what` itself if it exists as a file or folder, or does not have the form ORG/NAME or
// ORG/NAME@REVISION; otherwise the model's folder in the cache.
HASTEN_API std::string model_folder(
    const std::string& what, const config::Environment& environment = config::whole_environment());

// Returns the command that downloads the files that a folder in the cache lacks, such as "hf
// download ORG/NAME"; empty if the folder is not in a cache.
HASTEN_API std::string download_command(const std::filesystem::path& folder);

}  // namespace hasten
