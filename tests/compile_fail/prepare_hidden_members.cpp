// expect: hasten cannot reach the members of this loader's batches, so their tensors would stay on
// their device
#include <vector>

#include "hasten/accelerator.h"

class Batch {
 public:
  Batch() = default;
  at::Tensor data, target, weight;
};
void wrong(hasten::Accelerator& accelerator) {
  std::vector<Batch> batches(2);
  auto [loader] = accelerator.prepare(batches);
}
