// Finds the current stream of a GPU for the row kernels. It is a module that
// device/cuda/row_kernel_library.cpp loads on a machine with a GPU.
#include "device/cuda/row_kernel_module.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "base/internal_api.h"
#include "device/cuda/kernels/row_launches.h"

namespace hasten {
namespace {

using namespace gpu;

template <class... Call>
const char* launch_on_device(int index, const Call&... call) {
  const auto device = static_cast<c10::DeviceIndex>(index);
  const c10::cuda::CUDAGuard guard(device);
  return launch_on_stream(c10::cuda::getCurrentCUDAStream(device).stream(), call...);
}

class CudaRowKernels final : public RowKernelModule {
 public:
  const char* start(int index, const BiasGeluCall<>& call, NumberType type) const override {
    return launch_on_device(index, call, type);
  }
  const char* start(int index, const BiasGeluBackwardCall<>& call, NumberType type) const override {
    return launch_on_device(index, call, type);
  }
  const char* start(int index, const BiasTanhGeluCall& call, NumberType type) const override {
    return launch_on_device(index, call, type);
  }
  const char* start(int index, const BiasTanhGeluBackwardCall& call,
                    NumberType type) const override {
    return launch_on_device(index, call, type);
  }
  const char* start(int index, const ColumnSumCall<>& call, NumberType type) const override {
    return launch_on_device(index, call, type);
  }
  const char* start(int index, const DropoutCall<>& call, NumberType type) const override {
    return launch_on_device(index, call, type);
  }
  const char* start(int index, const DropoutAddNormCall<>& call, NumberType type) const override {
    return launch_on_device(index, call, type);
  }
  const char* start(int index, const DropoutAddNormBackwardCall<>& call,
                    NumberType type) const override {
    return launch_on_device(index, call, type);
  }
  const char* start(int index, const DropoutAddPreNormCall& call, NumberType type) const override {
    return launch_on_device(index, call, type);
  }
  const char* start(int index, const DropoutAddPreNormBackwardCall& call,
                    NumberType type) const override {
    return launch_on_device(index, call, type);
  }
  const char* start(int index, const SoftmaxDropoutCall<>& call, NumberType type) const override {
    return launch_on_device(index, call, type);
  }
  const char* start(int index, const SoftmaxDropoutBackwardCall<>& call,
                    NumberType type) const override {
    return launch_on_device(index, call, type);
  }
  const char* start(int index, const CrossEntropyCall<>& call, NumberType type) const override {
    return launch_on_device(index, call, type);
  }
  const char* start(int index, const EmbeddingSumKernel& kernel) const override {
    return launch_on_device(index, kernel);
  }
  const char* start(int index, const EmbeddingGradientCall& call) const override {
    return launch_on_device(index, call);
  }
};

}  // namespace
}  // namespace hasten

extern "C" HASTEN_INTERNAL_API const hasten::RowKernelModule* hasten_row_kernels() {
  static const hasten::CudaRowKernels one;
  return &one;
}
