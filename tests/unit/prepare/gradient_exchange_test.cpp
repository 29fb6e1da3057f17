// The form, the time and the trace of exchanged gradients.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/code_of.h"
#include "unit/prepare/multiprocess_checks.h"

namespace prepare_gradient_exchange_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;

namespace {

using torch::nn::Linear;
using torch::nn::Sequential;

// Four matrices of more than 1 MiB, in several buckets.
Sequential wide_model() {
  torch::manual_seed(3);
  return Sequential(Linear(600, 600), torch::nn::Tanh(), Linear(600, 600), torch::nn::Tanh(),
                    Linear(600, 600), torch::nn::Tanh(), Linear(600, 600));
}

at::Tensor rows_of(std::int64_t step, std::int64_t count) {
  torch::manual_seed(50 + step);
  return torch::randn({count, 600});
}

at::Tensor loss_of(const at::Tensor& out) { return (out - 1).pow(2).sum(1).mean(); }

std::vector<at::Tensor> single_process_weights(int steps) {
  Sequential model = wide_model();
  torch::optim::SGD optimizer(model->parameters(), 1e-3);
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    loss_of(model->forward(rows_of(step, 4))).backward();
    optimizer.step();
  }
  return copies(model->parameters());
}

std::vector<at::Tensor> distributed_weights(Accelerator& accelerator, int steps) {
  Sequential net = wide_model();
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(1e-3));
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    const at::Tensor own = rows_of(step, 4).narrow(0, accelerator.group().rank() * 2, 2);
    accelerator.backward(loss_of(model(own)));
    optimizer.step();
  }
  return copies(net->parameters());
}

// Returns the distance between the weights, relative to their distance from the initial weights.
double relative_error(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& expected) {
  const std::vector<at::Tensor> start = copies(wide_model()->parameters());
  double error = 0, way = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - expected[i]).pow(2).sum().item<double>();
    way += (expected[i] - start[i]).pow(2).sum().item<double>();
  }
  return std::sqrt(error / way);
}

// True if an address is in memory that the processes share.
bool is_shared(const void* address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream range(line);
    range >> std::hex >> begin >> dash >> end;
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    if (at >= begin && at < end) return line.find("memfd:hasten") != std::string::npos;
  }
  return false;
}

}  // namespace

TEST_CASE("exchange: gradient buckets are in the shared memory of the reduction") {
  constexpr int kSteps = 5;
  const std::vector<at::Tensor> expected = single_process_weights(kSteps);
  for (const bool views : {true, false}) {
    notebook_launcher(
        [&] {
          Accelerator accelerator({.cpu = true, .ddp = {.gradient_as_bucket_view = views}});
          Sequential net = wide_model();
          torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(1e-3));
          auto [model, optimizer] = accelerator.prepare(net, sgd);
          std::vector<bool> shared;
          for (int step = 0; step < kSteps; ++step) {
            optimizer.zero_grad();
            const at::Tensor own = rows_of(step, 4).narrow(0, accelerator.group().rank() * 2, 2);
            accelerator.backward(loss_of(model(own)));
            shared.push_back(is_shared(net->parameters()[0].grad().const_data_ptr()));
            optimizer.step();
          }
          // The first pass has its own buckets, and the buckets of the second pass are kept. From
          // the third pass on, gradients are views of them.
          require(shared == std::vector<bool>{false, false, views, views, views},
                  "other gradients are in shared memory");
          require_close(copies(net->parameters()), expected, "weights");
        },
        {.num_processes = 2, .use_cpu = true});
  }
}

TEST_CASE("exchange: PowerSGD with as many columns as a gradient is exact, over many buckets") {
  constexpr int kSteps = 5;
  const std::vector<at::Tensor> expected = single_process_weights(kSteps);
  // Four rows give gradients of at most rank four.
  const PowerSGDState all = {
      .matrix_approximation_rank = 8, .start_powerSGD_iter = 2, .min_compression_rate = 1};
  for (const bool warm : {true, false}) {
    debug_launcher([&] {
      PowerSGDState state = all;
      state.warm_start = warm;
      Accelerator accelerator({.ddp = {.bucket_cap_mb = 1,
                                       .comm_hook = CommunicationHook::power_sgd,
                                       .comm_state_option = state}});
      const double error = relative_error(distributed_weights(accelerator, kSteps), expected);
      require(error < 1e-4, str("off by ", error));
    });
  }
}

TEST_CASE("exchange: PowerSGD with few columns is equal everywhere and near the mean") {
  constexpr int kSteps = 6;
  const std::vector<at::Tensor> expected = single_process_weights(kSteps);
  for (const CommunicationHook hook :
       {CommunicationHook::power_sgd, CommunicationHook::batched_power_sgd}) {
    debug_launcher([&] {
      Accelerator accelerator({.ddp = {.bucket_cap_mb = 1,
                                       .comm_hook = hook,
                                       .comm_state_option = {.start_powerSGD_iter = 2}}});
      const std::vector<at::Tensor> got = distributed_weights(accelerator, kSteps);
      for (const at::Tensor& weight : got) {
        const at::Tensor both = accelerator.group().gather(weight.flatten().unsqueeze(0));
        require(at::equal(both[0], both[1]), "the same bits");
      }
      const double error = relative_error(got, expected);
      require(error < 0.8, str(name_of(hook), " is off by ", error));
    });
  }
}

TEST_CASE("exchange: PowerSGD stays finite after gradients of zeros") {
  debug_launcher([] {
    Accelerator accelerator({.ddp = {.comm_hook = CommunicationHook::power_sgd,
                                     .comm_state_option = {.start_powerSGD_iter = 2}}});
    Sequential net{Linear(torch::nn::LinearOptions(20, 20).bias(false))};
    auto [model] = accelerator.prepare(net);
    at::Tensor& gradient = net->parameters()[0].mutable_grad();
    for (int step = 0; step < 6; ++step) {
      if (gradient.defined()) gradient.zero_();
      const double scale = step == 3 || step == 4 ? 0 : 1;
      accelerator.backward(model(torch::ones({1, 20})).sum() * scale);
      require(gradient.isfinite().all().item<bool>(), str("step ", step));
    }
    const double deviation = (gradient - 1).abs().max().item<double>();
    require(deviation < 1e-4, str("a gradient of rank one is off by ", deviation));
  });
}

TEST_CASE("exchange: unsupported settings of PowerSGD are refused before anything is exchanged") {
  const auto refused = [](const PowerSGDState& state) {
    debug_launcher([&] {
      Accelerator accelerator(
          {.ddp = {.comm_hook = CommunicationHook::power_sgd, .comm_state_option = state}});
      Sequential net{Linear(2, 2)};
      require(code_of([&] { accelerator.prepare(net); }) == "prepare.power-sgd",
              "the settings are not refused");
    });
  };
  refused({.matrix_approximation_rank = 0});
  refused({.start_powerSGD_iter = 1});
  refused({.min_compression_rate = 0});
  refused({.orthogonalization_epsilon = -1});
}

TEST_CASE("exchange: trigger_sync_in_backward exchanges gradients that no_sync holds back") {
  debug_launcher([] {
    Accelerator accelerator({.gradient_accumulation_steps = 3});
    const Group& group = accelerator.group();
    torch::manual_seed(4);
    Sequential net{Linear(6, 3)};
    auto [model] = accelerator.prepare(net);
    at::Tensor& gradient = net->parameters()[0].mutable_grad();
    const auto own = [&](std::int64_t batch) {
      torch::manual_seed(10 * batch + group.rank());
      return torch::randn({2, 6});
    };
    const auto same = [&] {
      const at::Tensor all = group.gather(gradient.unsqueeze(0));
      return at::equal(all[0], all[1]);
    };
    // As in Accelerate's example, the forward passes run inside no_sync, and then one backward pass
    // exchanges.
    {
      auto guard = accelerator.no_sync(model);
      const at::Tensor first = model(own(0)).pow(2).mean(), second = model(own(1)).pow(2).mean();
      accelerator.backward(first);
      require(!same(), "no_sync exchanged the gradient");
      const at::Tensor here = gradient.clone();
      gradient.zero_();
      accelerator.backward(second);
      const at::Tensor expected = group.reduce(here + gradient, Reduction::mean);
      gradient.copy_(here);
      auto trigger = accelerator.trigger_sync_in_backward(model);
      accelerator.backward(model(own(1)).pow(2).mean());
      require(same(), "the gradients were not exchanged");
      require_close({gradient}, {expected}, "the mean");
    }
    // In a window, early exchanges count once.
    std::vector<at::Tensor> gradients;
    for (const bool early : {false, true}) {
      gradient.reset();
      for (std::int64_t batch = 0; batch < 3; ++batch) {
        auto guard = accelerator.accumulate(model);
        const double items = 1.0 + static_cast<double>(batch + group.rank());
        const at::Tensor loss = model(own(batch)).pow(2).mean();
        if (early && batch == 1) {
          auto scope = accelerator.trigger_sync_in_backward(model);
          accelerator.backward(loss, items);
          require(same(), "exchanged before the window's end");
        } else {
          accelerator.backward(loss, items);
        }
      }
      accelerator.mark_gradients_used();
      gradients.push_back(gradient.clone());
    }
    require_close({gradients[1]}, {gradients[0]}, "the window's gradient");
  });
}

TEST_CASE("exchange: a trace shows the exchange of buckets during the backward pass") {
  const TemporaryDirectory temporary;
  const std::filesystem::path& folder = temporary.path();
  debug_launcher([&] {
    Accelerator accelerator({.ddp = {.bucket_cap_mb = 1}});
    distributed_weights(accelerator, 2);  // these steps determine the order of the buckets
    auto profile = accelerator.profile(folder / std::to_string(accelerator.group().rank()));
    distributed_weights(accelerator, 12);
  });
  for (const char* rank : {"0", "1"}) {
    CAPTURE(rank);
    std::ifstream file(folder / rank);
    const auto trace = nlohmann::json::parse(file);
    struct Range {
      double begin, end;
    };
    std::vector<Range> buckets, nodes;
    for (const auto& event : trace.at("traceEvents")) {
      if (event.value("ph", "") != "X") continue;
      const std::string name = event.at("name");
      const double begin = event.at("ts");
      const Range range{begin, begin + event.at("dur").get<double>()};
      if (name.starts_with("exchange of bucket ")) buckets.push_back(range);
      if (name.starts_with("autograd::engine::evaluate_function")) nodes.push_back(range);
    }
    CHECK(buckets.size() >= 12 * 4);  // one for each matrix
    // The backward pass continues between two buckets: a node begins there, however long the
    // exchange of a bucket takes.
    std::ranges::sort(buckets, {}, &Range::begin);
    std::int64_t followed = 0;
    for (std::size_t i = 0; i + 1 < buckets.size(); ++i) {
      followed += std::any_of(nodes.begin(), nodes.end(), [&](const Range& node) {
        return buckets[i].begin < node.begin && node.begin < buckets[i + 1].begin;
      });
    }
    CHECK(followed == std::ssize(buckets) - 1);
  }
}

TEST_CASE("exchange: a static graph counts only the passes that exchange") {
  for (const bool views : {false, true}) {
    for (const bool by_window : {true, false}) {
      debug_launcher([&] {
        Accelerator accelerator({.gradient_accumulation_steps = by_window ? 2 : 1,
                                 .ddp = {.gradient_as_bucket_view = views, .static_graph = true}});
        Sequential net = wide_model();
        torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(1e-3));
        auto [model, optimizer] = accelerator.prepare(net, sgd);
        const auto own = [&](std::int64_t step) {
          return rows_of(step, 4).narrow(0, accelerator.group().rank() * 2, 2);
        };
        for (std::int64_t step = 0; step < 8; ++step) {
          if (by_window) {
            const auto guard = accelerator.accumulate(model);
            accelerator.backward(loss_of(model(own(step))));
          } else if (step % 2 == 0) {
            const auto guard = accelerator.no_sync(model);
            accelerator.backward(loss_of(model(own(step))));
            continue;
          } else {
            accelerator.backward(loss_of(model(own(step))));
          }
          optimizer.step();
          optimizer.zero_grad();
          for (const at::Tensor& weight : net->parameters()) {
            const at::Tensor all =
                accelerator.group().gather(weight.detach().flatten().unsqueeze(0));
            require(at::equal(all[0], all[1]), str("weights differ after batch ", step));
          }
        }
      });
    }
  }
}

}  // namespace prepare_gradient_exchange_test
