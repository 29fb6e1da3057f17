// File: machine/arrow_data.h (internal)
// Recognizes the data of Apache Arrow and Parquet, which hasten/data/arrow_dataset.h reads.
//
//   if (is_arrow_data("tokenized/train")) std::cout << "columns of Arrow\n";
//
// Throws nothing. Thread rule: any thread.
#pragma once

#include <filesystem>

#include "base/internal_api.h"

namespace hasten {

// The files of a folder that `save_to_disk` of Hugging Face datasets has written: a Dataset has the
// first, a DatasetDict with several splits has the second.
inline constexpr const char* kDatasetStateFile = "state.json";
inline constexpr const char* kDatasetSplitsFile = "dataset_dict.json";

// True for the name of a .arrow or .parquet file, and for a folder of save_to_disk.
HASTEN_INTERNAL_API bool is_arrow_data(const std::filesystem::path& path);

}  // namespace hasten
