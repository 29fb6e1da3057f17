// expect: hasten cannot reach the members of this batch, so its tensors would stay on their device
#include <torch/data/example.h>

#include "hasten/prepare/detail/to_device.h"

struct Batch : torch::data::Example<> {
  at::Tensor weight;
};
Batch wrong(Batch batch) { return hasten::to_device(batch, at::kCPU); }
