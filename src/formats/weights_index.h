// File: formats/weights_index.h (internal)
// Reads the index of weights in several files.
//
//   for (const auto& [file, tensors] : read_weights_index("model.safetensors.index.json"))
//     load(folder / file, tensors);
//
// Throws DataError "weights.index", IoError "io.*". Thread rule: pure function.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>

namespace hasten {

// Returns the names of the tensors of each file. A file is a name in the folder of the index, never
// a path.
std::map<std::string, std::set<std::string>> read_weights_index(const std::filesystem::path& path);

}  // namespace hasten
