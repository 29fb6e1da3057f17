#include "device/cuda/cuda_graphs.h"

#include "device/cuda/simulated_gpu.h"
#include "device/loadable_module.h"
#include "hasten/base/text.h"

namespace hasten {

GraphSupport cuda_graphs(int index) {
  using Make = GraphRecorder*(int);
  if (is_gpu_simulated())
    return {.recorder = simulated_graph_recorder(), .missing = "a simulated GPU without graphs"};
  static const auto module = load_module<Make>("libhasten_cuda_graphs.so", "hasten_cuda_graphs");
  if (module.function == nullptr)
    return {.missing = str("no libhasten_cuda_graphs.so: ", module.missing)};
  return {.recorder = std::unique_ptr<GraphRecorder>(module.function(index))};
}

}  // namespace hasten
