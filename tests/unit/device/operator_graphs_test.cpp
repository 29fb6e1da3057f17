// The tests' recorder, which repeats what a CUDA graph would repeat, and the interface to devices.
#include "unit/device/operator_graphs.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include "hasten/device/cuda_library.h"

namespace device_operator_graphs_test {

using namespace hasten;
using namespace hasten::operator_graphs;

TEST_CASE("graphs: a replay reads tensors anew and repeats numbers") {
  Counts counts;
  OperatorRecorder recorder(counts);
  const at::Tensor x = at::ones({3}), y = at::zeros({3});
  double factor = 2;
  at::Tensor sum;
  const GraphRecorder::Recording made = recorder.record([&] {
    y.add_(x.square(), factor);
    sum = y.sum();
  });
  REQUIRE(made.graph);
  CHECK_FALSE(y.any().item<bool>());  // recording has changed nothing
  x.fill_(3);
  factor = 5;
  made.graph->replay();
  CHECK(at::equal(y, at::full({3}, 18.0f)));
  CHECK(sum.item<float>() == 54);
  made.graph->replay();
  CHECK(at::equal(y, at::full({3}, 36.0f)));
  CHECK(counts.recordings == 1);
  CHECK(counts.replays == 2);
}

TEST_CASE("graphs: the passes of a model can be repeated") {
  Counts counts;
  OperatorRecorder recorder(counts);
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(4, 5),
                            torch::nn::LayerNorm(torch::nn::LayerNormOptions({5})),
                            torch::nn::Linear(5, 1));
  const at::Tensor x = at::randn({6, 4}), gradient = at::zeros({5, 4});
  const auto weight = net->parameters()[0];
  const auto gradient_of = [&] {
    return torch::autograd::grad({net->forward(x).square().mean()}, {weight})[0];
  };
  const GraphRecorder::Recording made = recorder.record([&] { gradient.copy_(gradient_of()); });
  REQUIRE_MESSAGE(made.graph, made.failure);
  x.copy_(at::randn({6, 4}));
  made.graph->replay();
  CHECK(at::equal(gradient, gradient_of()));
}

TEST_CASE(
    "graphs: a number that is read, or an exception, is a failure that leaves tensors as they "
    "are") {
  Counts counts;
  OperatorRecorder recorder(counts);
  const at::Tensor x = at::ones({2});
  const auto reads = recorder.record([&] {
    x.mul_(2);
    (void)x.sum().item<float>();
  });
  CHECK_FALSE(reads.graph);
  CHECK(reads.failure.find("a number is read") != std::string::npos);
  CHECK(at::equal(x, at::ones({2})));
  const auto throws = recorder.record([] { throw std::runtime_error("no rows"); });
  CHECK_FALSE(throws.graph);
  CHECK(throws.failure == "no rows");
  CHECK(counts.recordings == 0);
}

TEST_CASE("graphs: a device without graphs reports the reason") {
  for (const at::DeviceType type : {at::kCPU, at::kMeta}) {
    const GraphSupport support = device_of(at::Device(type)).graphs(0);
    CHECK_FALSE(support.recorder);
    CHECK(support.missing.find("has no graphs of operations") != std::string::npos);
  }
  load_cuda_library();
  if (torch::cuda::is_available()) return;
  const GraphSupport cuda = device_of(at::Device(at::kCUDA)).graphs(0);
  CHECK_FALSE(cuda.recorder);
  CHECK_FALSE(cuda.missing.empty());
}

TEST_CASE("graphs: a device replacement ends with its scope") {
  const Device& cpu = device_of(at::kCPU);
  {
    const GraphDevice device;
    const DeviceReplacement replacement(device);
    CHECK(&device_of(at::kCPU) == &device);
    CHECK(&device_of(at::kCUDA) != &device);
    CHECK(device_of(at::kCPU).graphs(0).recorder);
  }
  CHECK(&device_of(at::kCPU) == &cpu);
}

}  // namespace device_operator_graphs_test
