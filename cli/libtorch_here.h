// File: cli/libtorch_here.h
// Finds the LibTorch that hasten-torch would load, without loading it.
#pragma once

#include <string>

namespace hasten::cli {

struct LibTorchHere {
  std::string version;  // such as "2.11.0+cu130"; the build's if the folder does not have one
  std::string folder;   // the folder that holds lib/; empty: none was found
};

// Looks where the dynamic linker would: in LD_LIBRARY_PATH, then in the folders that the program's
// file names, then in the build's folder. `program` is hasten-torch; if it is empty or no ELF file,
// it names no folders.
LibTorchHere libtorch_of(const std::string& program);

}  // namespace hasten::cli
