// File: cli/libtorch_location.h
// Finds the LibTorch that hasten-torch would load, without loading it.
#pragma once

#include <string>

namespace hasten::cli {

struct LibTorchLocation {
  std::string version;  // such as "2.11.0+cu130"; the build's version if the folder has none
  std::string folder;   // the folder that holds lib/; empty if none was found
};

// Looks in LD_LIBRARY_PATH and in the folders that the program's file names, as the dynamic linker
// does, and then in the build's folder. `program` is hasten-torch, or empty.
LibTorchLocation find_libtorch(const std::string& program);

}  // namespace hasten::cli
