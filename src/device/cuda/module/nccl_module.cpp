// c10d's NCCL backend, which needs CUDA's headers to compile and its libraries to run. It is a
// module that device/cuda/nccl.cpp loads on a machine with a GPU, so that one build of hasten
// serves machines with and without CUDA.
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "base/internal_api.h"
#include "device/collective_backend.h"

#ifndef USE_C10D_NCCL
#error "c10d's NCCL header is empty without USE_C10D_NCCL"
#endif

extern "C" HASTEN_INTERNAL_API c10d::Backend* hasten_nccl_backend(
    const hasten::CollectiveSettings& settings) {
  auto options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/false);
  options->timeout = settings.timeout;
  auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(
      settings.store, static_cast<int>(settings.rank), static_cast<int>(settings.size),
      std::move(options));
  // The communicator is made now, so that its errors are reported before training starts.
  backend->setBoundDeviceId(settings.device);
  backend->eagerConnectSingleDevice(settings.device);
  return backend.release();
}
