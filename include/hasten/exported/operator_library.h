// File: hasten/exported/operator_library.h
// Loads a library with custom operators (TORCH_LIBRARY), as torch.ops.load_library does in Python.
//
//   auto model = hasten::load_exported("model.pt2", {.libraries = {"libmine.so"}});
//   // or, for several models:
//   const auto names = hasten::load_operator_library("libmine.so");    // {"mine"}
//   auto other = hasten::load_exported("other.pt2", {.operator_namespaces = names});
//
// Loading a library runs its code, so name only libraries that you would run. It stays loaded until
// the end of the process. A library that computes gradients registers them for the dispatch key
// Autograd.
//
// Throws IoError "io.not-found", and DataError "exported.library" for a file that the system cannot
// load or that registers no namespace of its own. Thread rule: any thread.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"

namespace hasten {

// Returns the namespaces of the operators that the library registers, without those that existed
// before. A second call for a library returns the same namespaces.
HASTEN_API std::vector<std::string> load_operator_library(const std::filesystem::path& file);

}  // namespace hasten
