// expect: Accelerator::prepare takes modules, optimizers, learning-rate schedulers and loaders
#include "hasten/accelerator.h"

void wrong(hasten::Accelerator& accelerator) { accelerator.prepare(42); }
