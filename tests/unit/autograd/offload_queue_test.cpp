// The queue of tensors in host memory, tested with copies that stay on the CPU, and the predicted
// memory of a GPU.
#include "autograd/offload_queue.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "hasten/anatomy/dry_run.h"
#include "hasten/autograd/activation_offload.h"
#include "hasten/autograd/checkpoint.h"
#include "hasten/device/memory.h"
#include "hasten/machine/gpus.h"
#include "unit/code_of.h"

namespace autograd_offload_queue_test {

using namespace hasten;
using at::Tensor;

namespace {

// Logs each copy with its number of elements.
struct RecordedCopies final : HostCopier {
  explicit RecordedCopies(std::vector<std::string>& log) : log(log) {}
  HostCopy to_host(const Tensor& tensor) override {
    log.push_back("out " + std::to_string(tensor.numel()));
    return {.tensor = tensor.clone(), .wait = [] {}};
  }
  DeviceCopy to_device(const Tensor& host, at::Device) override {
    log.push_back("back " + std::to_string(host.numel()));
    return {.tensor = host.clone(),
            .wait = [this, n = host.numel()] { log.push_back("wait " + std::to_string(n)); }};
  }
  std::vector<std::string>& log;
};

// Puts every tensor into the queue.
struct OffloadEverythingPolicy final : SavedTensorPolicy {
  explicit OffloadEverythingPolicy(std::shared_ptr<OffloadQueue> queue) : queue(std::move(queue)) {}
  struct Hooks final : SavedVariableHooks {
    explicit Hooks(std::shared_ptr<OffloadQueue> queue) : queue(std::move(queue)) {}
    void call_pack_hook(const Tensor& tensor) override { entry = queue->put(tensor); }
    Tensor call_unpack_hook() override { return queue->get(*entry); }
    std::shared_ptr<OffloadQueue> queue;
    std::shared_ptr<OffloadQueue::Entry> entry;
  };
  std::unique_ptr<SavedVariableHooks> hooks() override { return std::make_unique<Hooks>(queue); }
  std::shared_ptr<OffloadQueue> queue;
};

}  // namespace

TEST_CASE("offload: tensors come back ahead of the backward pass, in the opposite order") {
  std::vector<std::string> log;
  const auto queue = std::make_shared<OffloadQueue>(std::make_unique<RecordedCopies>(log));
  for (int step = 0; step < 2; ++step) {
    log.clear();
    const Tensor x = torch::ones({1, 2}).requires_grad_();
    Tensor y;
    {
      OffloadEverythingPolicy policy(queue);
      const SavedTensorScope scope(policy);
      y = x.sin().cos().exp().expand({3, 2}).tanh();
    }
    CHECK(log == std::vector<std::string>{"out 2", "out 2", "out 2", "out 6"});
    log.clear();
    y.sum().backward();
    CHECK(log == std::vector<std::string>{"back 6", "wait 6", "back 2", "back 2", "wait 2",
                                          "back 2", "wait 2", "wait 2"});
    CHECK(torch::equal(x.grad(), [&] {
      const Tensor same = torch::ones({1, 2}).requires_grad_();
      same.sin().cos().exp().expand({3, 2}).tanh().sum().backward();
      return same.grad();
    }()));
  }
}

TEST_CASE("offload: a tensor that is saved several times is copied once") {
  std::vector<std::string> log;
  const auto queue = std::make_shared<OffloadQueue>(std::make_unique<RecordedCopies>(log));
  const Tensor x = torch::ones({4}).requires_grad_();
  Tensor y;
  {
    OffloadEverythingPolicy policy(queue);
    const SavedTensorScope scope(policy);
    const Tensor a = x * 1.5;
    y = a.sin() + a.cos() + a.exp();
  }
  // The queue copies a once, and the result of exp once.
  CHECK(std::count(log.begin(), log.end(), "out 4") == 2);
  y.sum().backward(/*gradient=*/{}, /*retain_graph=*/true);
  const Tensor first = x.grad().clone();
  y.sum().backward();
  CHECK(torch::equal(x.grad(), 2 * first));
}

TEST_CASE("offload: activations leave the memory of a simulated GPU") {
  const auto peak = [](bool offloads, bool recomputes, bool offloads_inputs) {
    const DryRun dry(find_gpu("cuda:a100-80gb"));
    torch::nn::Sequential net;
    for (int i = 0; i < 8; ++i) {
      net->push_back(torch::nn::Linear(1024, 1024));
      net->push_back(torch::nn::GELU());
    }
    net->to(at::Device(at::kCUDA, 0));
    Tensor x = torch::ones({4096, 1024}, at::Device(at::kCUDA, 0));
    std::optional<ActivationOffload> offload;
    if (offloads) offload.emplace(*net);
    const CheckpointOptions options{.offload = offloads_inputs};
    for (std::size_t i = 0; i < 8; ++i) {
      const auto layer = [&net, i](const Tensor& y) {
        return net[2 * i + 1]->as<torch::nn::GELU>()->forward(
            net[2 * i]->as<torch::nn::Linear>()->forward(y));
      };
      x = recomputes ? checkpoint(options, layer, x) : layer(x);
    }
    offload.reset();
    const auto used = gpu_memory_used();
    x.sum().backward();
    return used.value() / (16 << 20);
  };
  const auto plain = peak(false, false, false);
  // Without offloading, sixteen tensors of 16 MiB stay on the GPU. With it, only the two that are
  // in use stay there.
  CHECK(plain - peak(true, false, false) >= 12);
  CHECK(plain - peak(false, true, false) >= 6);
  CHECK(peak(false, true, false) - peak(false, true, true) >= 6);
}

TEST_CASE("offload: inputs of a region on the CPU stay there") {
  const DryRun dry(find_gpu("cuda:a100-80gb"));
  const at::Device gpu(at::kCUDA, 0);
  const Tensor lengths = torch::ones({2}), x = torch::ones({4, 4}, gpu).requires_grad_();
  const auto f = [](const Tensor&, const Tensor& a) { return a.sin().cos(); };
  const Tensor y = checkpoint({.offload = true}, f, lengths, x * 2);
  y.sum().backward();
  CHECK(x.grad().device() == gpu);
}

TEST_CASE("offload: the CPU is refused") {
  torch::nn::Linear net(2, 2);
  CHECK(code_of([&] { const ActivationOffload offload(*net); }) == "autograd.offload");
}

}  // namespace autograd_offload_queue_test
