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

MainProcessFirst::MainProcessFirst(const ProcessState& process, const Group& group,
                                   bool of_each_machine)
    : group_(group),
      goes_first_(of_each_machine ? process.is_local_main_process() : process.is_main_process()) {
  if (!goes_first_) group_.barrier();
}

MainProcessFirst::~MainProcessFirst() {
  if (goes_first_) group_.barrier();
}

}  // namespace hasten
