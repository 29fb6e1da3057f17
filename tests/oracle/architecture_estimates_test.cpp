// The predicted memory of a training step of each exported architecture is exact to the byte.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include "hasten/trainer/estimate.h"
#include "oracle/architectures.h"
#include "unit/anatomy/same_memory.h"

namespace oracle_architecture_estimates_test {

using namespace hasten;
using namespace hasten::oracle;

TEST_CASE("exported: the memory of each architecture's step is predicted to the byte") {
  for (const auto& [name, entry] : architectures().items()) {
    CAPTURE(name);
    EstimateOptions options{.model = (kArchitectures / (name + ".pt2")).string(), .length = 8};
    options.arguments.per_device_train_batch_size = 3;
    options.arguments.max_grad_norm = 1e-3;  // so small that every step clips
    const anatomy::Memory predicted = estimate(options).memory;
    options.dry = false;
    check_same_memory(predicted, estimate(options).memory);
    record(name, "peak", predicted.peak);
  }
}

}  // namespace oracle_architecture_estimates_test
