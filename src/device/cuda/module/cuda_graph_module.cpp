// Records CUDA graphs with LibTorch. It needs CUDA's headers to compile and its libraries to run,
// so it is a module that device/cuda/cuda_graphs.cpp loads on a machine with a GPU.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <exception>
#include <memory>
#include <utility>

#include "base/internal_api.h"
#include "device/graph_recorder.h"

namespace hasten {
namespace {

// Returns the text of the exception that the call throws, or an empty text if it throws none.
template <class Call>
std::string failure_of(const Call& call) {
  try {
    call();
    return "";
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
}

class CudaGraph final : public RecordedGraph {
 public:
  CudaGraph(c10::DeviceIndex index, std::shared_ptr<const c10::MempoolId_t> pool)
      : index_(index), pool_(std::move(pool)) {}

  // Other threads, such as one that pins batches, may continue to call CUDA during the capture.
  void begin() { graph_.capture_begin(*pool_, cudaStreamCaptureModeThreadLocal); }
  void end() { graph_.capture_end(); }
  // Ends what is left of a capture that has failed. LibTorch's allocators would otherwise stay in
  // it: they would keep unused memory, and call a function of this graph after its destruction. An
  // allocator that is not in the capture throws, and has nothing to release.
  void abandon() {
    namespace of_device = c10::cuda::CUDACachingAllocator;
    const bool was_device_in_capture =
        failure_of([&] { of_device::endAllocateToPool(index_, *pool_); }).empty();
    if (was_device_in_capture) failure_of([&] { of_device::releasePool(index_, *pool_); });
    at::HostAllocator* const of_host = at::getHostAllocator(at::kCUDA);
    const bool was_host_in_capture =
        failure_of([&] { of_host->end_allocate_to_pool(*pool_); }).empty();
    if (was_host_in_capture) failure_of([&] { of_host->release_pool(*pool_); });
  }
  void replay() override {
    const c10::DeviceGuard guard(at::Device(at::kCUDA, index_));
    graph_.replay();
  }

 private:
  const c10::DeviceIndex index_;
  const std::shared_ptr<const c10::MempoolId_t> pool_;  // it must outlive the graph
  at::cuda::CUDAGraph graph_;
};

class CudaGraphRecorder final : public GraphRecorder {
 public:
  explicit CudaGraphRecorder(int index)
      : index_(static_cast<c10::DeviceIndex>(index)),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, index_)) {}

  Recording record(const std::function<void()>& work) override {
    const c10::DeviceGuard guard(at::Device(at::kCUDA, index_));
    // The device must be idle before a capture, because the captured stream depends on earlier
    // work. The graph's pool can use memory only if the caching allocator has returned it to the
    // driver.
    c10::cuda::device_synchronize();
    c10::cuda::CUDACachingAllocator::emptyCache();
    const c10::StreamGuard side(stream_.unwrap());
    // Makes cuBLAS's workspace of this stream, which outlives the graph, outside of its pool.
    (void)at::cuda::getCurrentCUDABlasHandle();
    const at::Generator generator = at::cuda::detail::getDefaultCUDAGenerator(index_);
    const at::Generator before = generator.clone();
    auto made = std::make_unique<CudaGraph>(index_, pool());
    std::string failure = failure_of([&] { made->begin(); });
    if (failure.empty()) {
      failure = failure_of(work);
      const std::string at_end = failure_of([&] { made->end(); });
      if (failure.empty()) failure = at_end;
    }
    if (failure.empty()) return {.graph = std::move(made)};
    made->abandon();
    // A failed capture leaves the generator in the state of a running capture.
    at::Generator restored = generator;
    restored.graphsafe_set_state(before);
    return {.failure = failure};
  }

 private:
  // Returns the pool of the graphs that exist, or a new one if there are none. LibTorch does not
  // capture into a pool again after its last graph has been destroyed.
  std::shared_ptr<const c10::MempoolId_t> pool() {
    std::shared_ptr<const c10::MempoolId_t> shared = pool_.lock();
    if (!shared) {
      shared = std::make_shared<const c10::MempoolId_t>(at::cuda::graph_pool_handle());
      pool_ = shared;
    }
    return shared;
  }

  const c10::DeviceIndex index_;
  // One stream for all captures, because libraries keep a workspace for each.
  const c10::cuda::CUDAStream stream_;
  std::weak_ptr<const c10::MempoolId_t> pool_;
};

}  // namespace
}  // namespace hasten

extern "C" HASTEN_INTERNAL_API hasten::GraphRecorder* hasten_cuda_graphs(int index) {
  return new hasten::CudaGraphRecorder(index);
}
