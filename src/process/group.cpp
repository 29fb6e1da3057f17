#include "hasten/process/group.h"

#include <torch/torch.h>

#include <cstdlib>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {

namespace {

// A launcher has started several of this program: each would train by itself, on all of the data,
// and write the same files.
void refuse_to_be_one_of_many() {
  for (const char* name : {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const char* const size = std::getenv(name);
    if (size == nullptr || std::atol(size) <= 1) continue;
    throw UsageError(
        "process.one-of-many",
        {.what = "an Accelerator in one of several processes",
         .got = str(name, "=", size),
         .expected = "one process: training across processes comes with a later release",
         .hint = str("start the program alone, or unset ", name)});
  }
}

}  // namespace

ProcessState ProcessState::single(bool cpu) {
  refuse_to_be_one_of_many();
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
