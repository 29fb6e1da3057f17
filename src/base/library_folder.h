// File: base/library_folder.h (internal)
// Finds the other libraries of hasten, which are in the same folder whether hasten is built or
// installed.
//
//   dlopen((library_folder() / "libhasten_nccl.so").c_str(), RTLD_NOW);
//
// Thread rule: any thread.
#pragma once

#include <filesystem>

#include "base/internal_api.h"

namespace hasten {

// Returns the folder of the library that contains this function, or an empty path if it is unknown.
HASTEN_INTERNAL_API std::filesystem::path library_folder();

}  // namespace hasten
