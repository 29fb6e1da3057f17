// Device tpu, and modules, optimizers and references that move to it.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "hasten/accelerator.h"
#include "hasten/process/notebook_launcher.h"
#include "tpu/device/opened_tpu.h"
#include "unit/code_of.h"

namespace tpu_device_test {

using namespace hasten;

namespace {

double difference(const at::Tensor& on_tpu, const at::Tensor& on_cpu) {
  return (on_tpu.cpu() - on_cpu).abs().max().item<double>();
}

struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    table = register_parameter("table", at::randn({6, 4}));
    output = register_parameter("output", table);           // one tensor, two names
    shared = register_parameter("shared", table.detach());  // one memory, two tensors
    other = register_parameter("other", at::randn({4}));
    count = register_buffer("count", at::arange(3));
  }
  at::Tensor forward(const at::Tensor& x) {
    return (x.matmul(table.t()) + 1).matmul(output) * other;
  }
  at::Tensor table, output, shared, other, count;
};

// The peak memory of this process since reset_peak() is status_bytes("VmHWM:").
void reset_peak() { std::ofstream("/proc/self/clear_refs") << 5; }
std::int64_t status_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    std::int64_t kilobytes = 0;
    if (word == key && file >> kilobytes) return kilobytes * 1024;
  }
  return -1;
}

}  // namespace

TEST_CASE("tpu: products and activations equal the CPU's") {
  const at::Device tpu = tpu_device();
  CHECK(tpu.str() == "tpu:0");
  const at::Tensor a = at::randn({64, 32}), b = at::randn({32, 16});
  const at::Tensor y = at::relu(a.to(tpu).matmul(b.to(tpu)));
  CHECK(y.device() == tpu);
  CHECK(difference(y, at::relu(a.matmul(b))) < 1e-5);
  CHECK(difference(at::softmax(b.to(tpu), 1), at::softmax(b, 1)) < 1e-6);
}

TEST_CASE("tpu: prepare moves a module in place, and references to its parameters stay valid") {
  const auto net = std::make_shared<TiedImpl>();
  const at::Tensor mine = net->table, before = net->table.detach().clone();
  torch::optim::AdamW adamw(net->parameters());
  // A step on the CPU creates gradients, moments and autograd nodes.
  const at::Tensor kept = net->forward(at::ones({2, 4})).sum();
  kept.backward();
  adamw.step();
  const at::Tensor gradient = net->table.grad(), table = net->table.detach().clone();
  Accelerator accelerator({.tpu = true});
  auto [model, optimizer] = accelerator.prepare(net, adamw);
  const at::Device tpu = accelerator.device();
  for (const auto& parameter : net->parameters()) CHECK(parameter.device() == tpu);
  CHECK(net->count.device() == tpu);
  CHECK(mine.is_same(net->table));
  CHECK(net->output.is_same(net->table));
  CHECK(net->shared.storage().is_alias_of(net->table.storage()));
  CHECK(net->table.requires_grad());
  CHECK(gradient.device() == tpu);
  CHECK(net->table.grad().is_same(gradient));
  CHECK(at::equal(net->table.cpu(), table));
  const auto& held = adamw.param_groups()[0].params();
  CHECK(held[0].is_same(net->table));
  auto& state =
      static_cast<torch::optim::AdamWParamState&>(*adamw.state().at(mine.unsafeGetTensorImpl()));
  CHECK(state.exp_avg().device() == tpu);
  // The moved model can be trained.
  optimizer.zero_grad();
  accelerator.backward(model(at::ones({2, 4}, tpu)).sum());
  REQUIRE(mine.grad().defined());
  CHECK(mine.grad().device() == tpu);
  optimizer.step();
  CHECK(difference(mine, table) > 0);
}

// The CPU engine's devices also use this process's memory, so a second copy would be visible.
TEST_CASE(
    "tpu: moving a model to the device needs the memory of another tensor, not of another model") {
  constexpr std::int64_t kTensors = 24, kBytes = std::int64_t{16} << 20;
  tpu_device();
  const auto net = std::make_shared<torch::nn::Module>();
  for (std::int64_t i = 0; i < kTensors; ++i)
    net->register_parameter("p" + std::to_string(i), at::ones({kBytes / 4}));
  reset_peak();
  const std::int64_t before = status_bytes("VmRSS:");
  Accelerator accelerator({.tpu = true});
  auto [model] = accelerator.prepare(net);
  const std::int64_t more = status_bytes("VmHWM:") - before;
  CHECK(before > kTensors * kBytes);
  CAPTURE(more);
  CHECK(more < 4 * kBytes);
  for (const auto& parameter : net->parameters()) CHECK(parameter.device() == accelerator.device());
}

TEST_CASE("tpu: a missing device and forked processes are errors") {
  tpu_device();
  CHECK(unusable_tpu_reason().empty());
  CHECK(code_of([] { tpu_device(1); }) == "device.tpu-index");
  CHECK(code_of([] { notebook_launcher([] {}, {.num_processes = 2}); }) ==
        "process.fork-after-tpu");
  const pid_t child = fork();
  if (child == 0) _exit(code_of([] { tpu_device(); }) == "device.tpu-forked" ? 0 : 1);
  int status = 1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}

}  // namespace tpu_device_test
