// File: cli/libtorch_here.h
// Which LibTorch hasten-torch would load, found without loading it.
#pragma once

#include <string>

namespace hasten::cli {

struct LibTorchHere {
  std::string version;  // "2.11.0+cu130"; that of the build where the folder does not tell
  std::string folder;   // that holds lib/; empty: none is there
};

// Looks where the dynamic linker would: LD_LIBRARY_PATH, then the program's own list. `program` is
// hasten-torch; empty or no ELF file: only the folder of the build.
LibTorchHere libtorch_of(const std::string& program);

}  // namespace hasten::cli
