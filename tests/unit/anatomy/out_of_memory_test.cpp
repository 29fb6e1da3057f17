// If memory runs out, the error names the place, and the batch that it suggests does fit.
#include "hasten/anatomy/out_of_memory.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <utility>

#include "anatomy/step_mark.h"
#include "base/child_process.h"
#include "hasten/accelerator.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/trainer/estimate.h"
#include "process/fork/fork_safety.h"
#include "unit/anatomy/host_gpu.h"
#include "unit/prepare/multiprocess_checks.h"

namespace anatomy_out_of_memory_test {

using namespace hasten;
using anatomy::Component;
using anatomy::OutOfMemory;
using anatomy::Phase;
using anatomy::total;
using multiprocess_checks::require;

namespace {

constexpr std::int64_t kMiB = 1 << 20;

// Has three layers. The activations of each layer have 1 MiB for each row.
struct NetImpl : torch::nn::Module {
  NetImpl()
      : first(register_module("first", torch::nn::Linear(16, 1 << 18))),
        second(register_module("second", torch::nn::Linear(1 << 18, 16))),
        third(register_module("third", torch::nn::Linear(16, 1 << 18))) {}
  at::Tensor forward(const at::Tensor& x) { return third(second(torch::relu(first(x)))); }
  torch::nn::Linear first, second, third;
};
TORCH_MODULE(Net);

struct Loop {
  explicit Loop(bool cpu = true) : accelerator(AcceleratorOptions{.cpu = cpu}) {}

  Net net;
  torch::optim::SGD sgd{net->parameters(), torch::optim::SGDOptions(0.1)};
  Accelerator accelerator;
  PreparedModel<NetImpl> model = std::get<0>(accelerator.prepare(net));
  PreparedOptimizer optimizer = std::get<0>(accelerator.prepare(sgd));

  void step(std::int64_t rows) {
    const at::Tensor x = at::ones({rows, 16}).to(accelerator.device());
    const at::Tensor loss = model(x).square().mean();
    accelerator.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
  }
  ExplainableStep explainable_step(std::int64_t rows) {
    return {.step = [this](std::int64_t some) { step(some); },
            .rows = rows,
            .parameters = net->parameters(),
            .anatomy = [this](const AnatomyOptions& o) { return accelerator.anatomy(o); }};
  }
};

// Runs the function in its own process, where it may limit the memory. The function may run
// backward passes even if this process has run some.
void run_in_child(const std::function<void()>& function) {
  pause_openmp();
  ChildProcess process({.skips_handlers = true}, [&] {
    at::set_num_threads(1);
    try {
      function();
      _exit(0);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      _exit(1);
    }
  });
  REQUIRE(process.error() == 0);
  const auto status = process.reap();
  CHECK((status && *status == 0));
}

// Limits the address space to its current size and `more` bytes.
void limit_memory(std::int64_t more) {
  std::ifstream statm("/proc/self/statm");
  std::int64_t pages = 0;
  statm >> pages;
  const auto bytes = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + more);
  const rlimit limit{bytes, bytes};
  require(setrlimit(RLIMIT_AS, &limit) == 0, "setrlimit");
}

std::string failure_of(const ExplainableStep& step) {
  try {
    run_explained(step);
  } catch (const MemoryError& error) {
    require(error.code() == "anatomy.out-of-memory", error.code());
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("out of memory: an anatomy with a limit names the allocation that exceeds it") {
  Loop loop;
  const DryRun dry;
  Anatomy anatomy =
      loop.accelerator.anatomy({.steps = 0, .exceeds_limit = [](const ObservedAllocation& a) {
                                  return a.live > 200 * kMiB;
                                }});
  loop.step(64);
  const anatomy::Report report = anatomy.report();
  REQUIRE(report.memory.out_of_memory.has_value());
  const OutOfMemory& failure = *report.memory.out_of_memory;
  CHECK(total(failure.allocated) <= 200 * kMiB);
  CHECK(total(failure.allocated) + failure.requested > 200 * kMiB);
  // 49 MiB of weights and two activations of 64 MiB; the third layer's result does not fit.
  CHECK(failure.phase == Phase::forward);
  CHECK(failure.module == "third");
  CHECK(failure.requested == 64 * kMiB);
  CHECK(bytes_of(failure.allocated, Component::activations) >= 64 * kMiB);
  CHECK(to_text(failure).find("memory runs out in the forward pass, in aten::") == 0);
  CHECK(to_text(report).find("Out of memory: memory runs out") != std::string::npos);
  CHECK(to_json(report).find("\"out_of_memory\"") != std::string::npos);
}

TEST_CASE("out of memory: a dry GPU names the allocation that exceeds its capacity") {
  Gpu gpu = find_gpu("cuda:t4");
  gpu.memory = gpu.context + 200 * kMiB;
  const DryRun dry(gpu);
  Net net;
  net->to(at::kCUDA);
  Anatomy anatomy;
  anatomy.watch(*net);
  {
    const auto phase = anatomy.forward();
    net->forward(at::ones({64, 16}, at::TensorOptions().device(at::kCUDA)));
  }
  const anatomy::Report report = anatomy.report();
  REQUIRE(report.memory.out_of_memory.has_value());
  CHECK(report.memory.out_of_memory->requested >= 64 * kMiB);
  CHECK(report.memory.out_of_memory->phase == Phase::forward);
  CHECK(report.memory.gpu->missing > 0);
  CHECK(total(report.memory.out_of_memory->allocated) <= 200 * kMiB);
}

TEST_CASE("out of memory: the suggested batch is the largest that fits the GPU") {
  EstimateOptions options{.model = "bert-base",
                          .length = 512,
                          .arguments = {.per_device_train_batch_size = 512},
                          .device = "cuda:t4"};
  const std::int64_t memory = find_gpu("cuda:t4").memory;
  const FittingBatch batch = largest_fitting_batch(options, memory);
  REQUIRE(batch.rows > 1);
  REQUIRE(batch.rows < 512);
  options.arguments.per_device_train_batch_size = batch.rows;
  CHECK(estimate(options).memory.gpu->missing == 0);
  CHECK_FALSE(estimate(options).memory.out_of_memory.has_value());
  options.arguments.per_device_train_batch_size = batch.rows + 1;
  CHECK(estimate(options).memory.gpu->missing > 0);
}

TEST_CASE("out of memory: a step under a limit of the address space is explained") {
  run_in_child([] {
    Loop loop;
    loop.step(1);
    limit_memory(500 * kMiB);
    const std::string text = failure_of(loop.explainable_step(400));
    // The first layer's result of 400 MiB fits, and the result of relu does not.
    require(text.find("memory runs out in the forward pass, in aten::relu of first") == 0 ||
                text.find("memory runs out in the forward pass, in aten::clamp_min of first") == 0,
            text);
    require(text.find("you tried to allocate 419430400 bytes") != text.npos, text);
    require(text.find("temporary_buffers 419 MB") != text.npos, text);
    const std::size_t at = text.find("a batch of ");
    require(at != text.npos, text);
    const std::int64_t rows = std::atoll(text.c_str() + at + 11);
    require(rows > 50 && rows < 300, text);
    require(failure_of(loop.explainable_step(rows)).empty(), str(rows, " rows do not fit"));
  });
}

TEST_CASE("out of memory: a backward pass that fails is named by its layer") {
  run_in_child([] {
    Loop loop;
    loop.step(1);
    // The forward pass needs 4 x 100 MiB at its peak, and the backward pass needs 100 MiB more.
    limit_memory(580 * kMiB);
    const std::string text = failure_of(loop.explainable_step(100));
    require(text.find("memory runs out in the backward pass") == 0, text);
    require(text.find(" of third") != text.npos || text.find(" of (model)") != text.npos, text);
  });
}

TEST_CASE("out of memory: a step on a GPU is explained, although CUDA does not work in a fork") {
  run_in_child([] {
    // The weights have 49 MiB, and each activation of 64 rows has 64 MiB.
    use_host_gpu(200 * kMiB);
    Loop loop(/*cpu=*/false);
    require(loop.accelerator.device().is_cuda(), "the simulated GPU is not used");
    loop.step(1);
    const std::string text = failure_of(loop.explainable_step(64));
    require(text.find("memory runs out in the forward pass, in aten::") == 0, text);
    require(text.find(" of third: it requests 67.1 MB for ") != text.npos, text);
    require(text.find(" MB are allocated (") != text.npos, text);
    const std::string got =
        ": got CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a "
        "total capacity of 200.00 MiB of which ";
    require(text.find(got) != text.npos, text);
    require(text.find(" MiB is free. Hint: a batch of ") != text.npos, text);
    require(text.find("PYTORCH_CUDA_ALLOC_CONF") == text.npos, text);
    const std::int64_t rows = std::atoll(text.c_str() + text.find("a batch of ") + 11);
    require(rows > 16 && rows < 64, text);
    require(failure_of(loop.explainable_step(rows)).empty(), str(rows, " rows do not fit"));
  });
}

TEST_CASE(
    "out of memory: a backward pass on a GPU, whose thread is missing in a fork, is explained") {
  run_in_child([] {
    // The forward pass holds 49 MiB and four activations at its peak, and the backward pass five.
    use_host_gpu(340 * kMiB);
    Loop loop(/*cpu=*/false);
    loop.step(1);
    const std::string text = failure_of(loop.explainable_step(64));
    require(text.find("memory runs out in the backward pass, in aten::") == 0, text);
    require(text.find("it requests 67.1 MB for ") != text.npos, text);
  });
}

TEST_CASE("anatomy: the clock stops when a GPU has completed the recorded steps") {
  run_in_child([] {
    use_host_gpu(512 * kMiB);
    Loop loop(/*cpu=*/false);
    loop.step(1);
    const auto record = [&](std::int64_t steps) {
      Anatomy anatomy = loop.accelerator.anatomy({.steps = steps});
      std::int64_t waits_before_last = 0;
      for (int i = 0; i < 2; ++i) {
        waits_before_last = host_gpu_waits();
        loop.step(1);
      }
      return std::pair(anatomy.report(), host_gpu_waits() - waits_before_last);
    };
    const auto [report, waits_of_last] = record(2);
    require(host_gpu_waits() == 2 && waits_of_last == 1, "it did not wait before and after");
    require(report.steps == 2 && report.seconds >= 0.02, "the wait is not part of the time");
    const std::string text = to_text(report);
    require(text.find("Note: the times of operators are those of the host") != text.npos, text);
    // The end of the work is not known if the recording had no last step.
    require(record(3).first.seconds == 0, "a recording that ended early has a time");
    require(host_gpu_waits() == 3, "a recording that ended early waited at its end");
  });
}

TEST_CASE("out of memory: without an explanation the allocator's text remains") {
  const ExplainableStep step{.step = [](std::int64_t) { at::empty({std::int64_t{1} << 46}); }};
  const std::string text = failure_of(step);
  CHECK(text.find("out of memory in a step of 1 rows: got ") == 0);
  CHECK(text.find("281474976710656 bytes") != std::string::npos);
  // Other errors pass through unchanged.
  CHECK_THROWS_AS(run_explained({.step = [](std::int64_t) { throw std::runtime_error("other"); }}),
                  std::runtime_error);
}

TEST_CASE("out of memory: the requested bytes are read from both allocators' messages") {
  using anatomy::requested_bytes;
  const auto requested = [](const char* text) { return requested_bytes(std::runtime_error(text)); };
  CHECK(requested("can't allocate memory: you tried to allocate 4096 bytes. Error code 12")
            .matches(4096));
  CHECK_FALSE(requested("you tried to allocate 4096 bytes.").matches(4097));
  // The message for a GPU has the size of the segment, not the requested bytes.
  const auto gpu = requested("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has");
  CHECK(gpu.matches(3 * kMiB));
  CHECK(gpu.matches(20 * kMiB));
  CHECK_FALSE(gpu.matches(20 * kMiB + 512));
  CHECK_FALSE(gpu.matches(kMiB));
  CHECK(requested("something else").matches(1));  // an unknown size matches every size
}

TEST_CASE("out of memory: a mark counts the nodes and the gradients that come after it") {
  const at::Tensor x = at::ones({2}).requires_grad_(), y = at::ones({2}).requires_grad_();
  const std::vector<at::Tensor> parameters = {x, y};
  const anatomy::StepMark mark(parameters);
  CHECK(mark.progress() == anatomy::StepProgress{});
  const at::Tensor loss = (x * 2).sum();
  CHECK(mark.progress().nodes == 2);
  loss.backward();
  CHECK(mark.progress().gradients == 1);
  const anatomy::StepMark second(parameters);
  (x * 2).sum().backward();
  CHECK(second.progress().gradients == 1);  // accumulated in place
  mark.drop_new_gradients();
  CHECK_FALSE(x.grad().defined());
}

}  // namespace anatomy_out_of_memory_test
