// Trains a small model in 1, 2 or 4 processes; windows.py compares the printed weights.
//
//   windows CASE       tied, skipped, unfrozen, raw backward
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/error.h"

using namespace hasten;

namespace {

// The micro-batches of a window, and the rows of a micro-batch in all processes together.
constexpr std::int64_t kWindow = 3, kRows = 4;

struct Net : torch::nn::Module {
  explicit Net(bool tied) {
    torch::manual_seed(5);
    first = register_module("first", torch::nn::Linear(6, 6));
    second = register_module("second", tied ? first : torch::nn::Linear(6, 6));
  }
  at::Tensor forward(const at::Tensor& x) { return second(torch::tanh(first(x))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

// The rows of this process in a micro-batch.
at::Tensor rows_of(const Group& group, std::int64_t micro_batch) {
  torch::manual_seed(100 + micro_batch);
  const std::int64_t share = kRows / group.size();
  return torch::randn({kRows, 6}).narrow(0, group.rank() * share, share);
}

struct Loop {
  explicit Loop(Accelerator& accelerator, bool tied = false)
      : accelerator(accelerator), net(std::make_shared<Net>(tied)) {}

  void run(const std::function<void(std::int64_t, PreparedModel<Net>&)>& micro_batch) {
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.2));
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    for (std::int64_t i = 0; i < 4 * kWindow; ++i) {
      auto guard = accelerator.accumulate(model);
      micro_batch(i, model);
      accelerator.clip_grad_norm_(model->parameters(), 0.5);
      optimizer.step();
      optimizer.zero_grad();
    }
  }

  Accelerator& accelerator;
  std::shared_ptr<Net> net;
};

void backward(Accelerator& accelerator, PreparedModel<Net>& model, const at::Tensor& rows) {
  accelerator.backward((model(rows) - 0.5).square().mean(), static_cast<double>(rows.size(0)));
}

std::shared_ptr<Net> tied(Accelerator& accelerator) {
  Loop loop(accelerator, /*tied=*/true);
  loop.run([&](std::int64_t i, PreparedModel<Net>& model) {
    backward(accelerator, model, rows_of(accelerator.group(), i));
  });
  return loop.net;
}

// Two of the rows of each window's last micro-batch are bad. Processes that have only bad rows skip
// the backward pass.
std::shared_ptr<Net> skipped(Accelerator& accelerator) {
  const Group& group = accelerator.group();
  Loop loop(accelerator);
  loop.run([&](std::int64_t i, PreparedModel<Net>& model) {
    const at::Tensor rows = rows_of(group, i);
    std::int64_t good = rows.size(0);
    if (i % kWindow == kWindow - 1)
      good = std::clamp<std::int64_t>(2 - group.rank() * good, 0, good);
    if (good > 0) backward(accelerator, model, rows.narrow(0, 0, good));
  });
  return loop.net;
}

std::shared_ptr<Net> unfrozen(Accelerator& accelerator) {
  Loop loop(accelerator);
  for (at::Tensor& each : loop.net->first->parameters()) each.requires_grad_(false);
  loop.run([&](std::int64_t i, PreparedModel<Net>& model) {
    if (i == kWindow)
      for (at::Tensor& each : loop.net->first->parameters()) each.requires_grad_(true);
    backward(accelerator, model, rows_of(accelerator.group(), i));
  });
  return loop.net;
}

std::shared_ptr<Net> raw_backward(Accelerator& accelerator) {
  Loop loop(accelerator);
  loop.run([&](std::int64_t i, PreparedModel<Net>& model) {
    model(rows_of(accelerator.group(), i)).square().mean().backward();
  });
  return loop.net;
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<std::shared_ptr<Net>(Accelerator&)>> cases = {
      {"tied", tied}, {"skipped", skipped}, {"unfrozen", unfrozen}, {"raw backward", raw_backward}};
  try {
    Accelerator accelerator({.gradient_accumulation_steps = kWindow, .cpu = true});
    const auto net = cases.at(argc > 1 ? argv[1] : "")(accelerator);
    std::vector<at::Tensor> flat;
    for (const at::Tensor& each : net->parameters()) flat.push_back(each.detach().flatten());
    const at::Tensor all = accelerator.gather(at::cat(flat).unsqueeze(0));
    const at::Tensor own = all[0].contiguous();
    if (!at::equal(all, own.unsqueeze(0).expand_as(all))) {
      std::fprintf(stderr, "the weights differ between processes\n");
      return 1;
    }
    if (!accelerator.is_main_process()) return 0;
    for (std::int64_t i = 0; i < own.numel(); ++i)
      std::printf("%.9g ", static_cast<double>(own.const_data_ptr<float>()[i]));
    std::printf("\n");
  } catch (const Error& error) {
    std::fprintf(stderr, "error[%s]: %s\n", error.code().c_str(), error.what());
    return error.exit_code();
  }
}
