// expect: Accelerator::prepare takes modules, optimizers, learning-rate schedulers and loaders
#include "hasten/accelerator.h"

struct NotALoader {};
void wrong(hasten::Accelerator& accelerator) { accelerator.prepare(NotALoader{}); }
