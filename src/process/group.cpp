#include "hasten/process/group.h"

#include <torch/torch.h>

namespace hasten {

ProcessState ProcessState::single(bool cpu) {
  ProcessState state;
  if (!cpu && torch::cuda::is_available()) state.device = at::Device(at::kCUDA, 0);
  return state;
}

at::Tensor Group::gather(const at::Tensor& tensor) const {
  return tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor;
}

at::Tensor Group::reduce(const at::Tensor& tensor, Reduction, double scale) const {
  return scale == 1.0 ? tensor : tensor * scale;
}

at::Tensor Group::broadcast(const at::Tensor& tensor, std::int64_t from) const {
  TORCH_CHECK(from == 0, "broadcast: got rank ", from, ", expected 0 in a group of 1");
  return tensor;
}

at::Tensor Group::pad_across_processes(const at::Tensor& tensor, std::int64_t, double, bool) const {
  return tensor;
}

}  // namespace hasten
