// File: trainer/changeable_sizes.h (internal)
// Returns which sizes of an estimate's batches can change: an exported program may have fixed them.
//
//   if (changeable_sizes(options).length) options.length /= 2;
//
// Throws what the constructor of an ExportedModule throws. Thread rule: a pure function, which
// reads the file of an exported model.
#pragma once

#include "hasten/trainer/estimate.h"

namespace hasten {

struct ChangeableSizes {
  bool rows = true, length = true;
};

ChangeableSizes changeable_sizes(const EstimateOptions& options);

}  // namespace hasten
