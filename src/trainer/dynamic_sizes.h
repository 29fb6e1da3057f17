// File: trainer/dynamic_sizes.h (internal)
// Returns which sizes of an estimate's batches can change: an exported program may have fixed them.
//
//   if (dynamic_sizes(options).length) options.length /= 2;
//
// Throws what the constructor of an ExportedModule throws. Thread rule: a pure function, which
// reads the file of an exported model.
#pragma once

#include "hasten/trainer/estimate.h"

namespace hasten {

struct DynamicSizes {
  bool rows = true, length = true;
};

DynamicSizes dynamic_sizes(const EstimateOptions& options);

}  // namespace hasten
