// Two processes train each exported architecture like one process.
//
// A step has two micro-batches. Each of the two processes computes one, or one process accumulates
// both. Both runs sum the same two gradients, each divided by two. The weights are therefore equal
// to the last bit, including dropout and batch norm in training. One batch with all rows is a
// different computation, because dropout draws different numbers and batch norm has different
// statistics. It is therefore compared in evaluation mode, and within the rounding of sums in a
// different order.
#include <ATen/Parallel.h>
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>

#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/exported/exported_module.h"
#include "hasten/formats/safetensors.h"
#include "hasten/process/notebook_launcher.h"
#include "oracle/architectures.h"
#include "oracle/exported_cases.h"

namespace oracle_architecture_ranks_test {

using namespace hasten;
using namespace hasten::oracle;

namespace {

constexpr std::int64_t kParts = 2, kSteps = 3;
constexpr double kWholeBatchTolerance = 1e-5;  // relative to the largest gradient

TensorDict data_of(const std::string& name) {
  return load_safetensors(kArchitectures / (name + ".safetensors"));
}

std::shared_ptr<ExportedModule> model_of(const std::string& name) {
  return load_exported(kArchitectures / (name + ".pt2"));
}

// find_unused_parameters is on because some models have parameters without gradients.
AcceleratorOptions options_for(std::int64_t parts) {
  return {
      .gradient_accumulation_steps = parts, .cpu = true, .ddp = {.find_unused_parameters = true}};
}

TensorDict parameters_of(const ExportedModule& model, bool gradients) {
  TensorDict all;
  for (const auto& item : model.named_parameters()) {
    const at::Tensor value = gradients ? item.value().grad() : item.value();
    if (value.defined()) all[item.key()] = value.detach().clone();
  }
  return all;
}

// Trains on the micro-batches of this process, and returns the weights.
TensorDict train(const std::string& name, const TensorDict& data) {
  const std::int64_t ranks = Accelerator({.cpu = true}).process().num_processes;
  Accelerator accelerator(options_for(kParts / ranks));
  const auto net = model_of(name);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  for (std::int64_t step = 0; step < kSteps; ++step) {
    for (std::int64_t at = accelerator.process().process_index; at < kParts; at += ranks) {
      const auto guard = accelerator.accumulate(model);
      optimizer.zero_grad();
      torch::manual_seed(static_cast<std::uint64_t>(kParts * step + at));
      const TensorDict outputs = model(part(data, str("input.", at, '.')));
      accelerator.backward(loss_of(outputs, data.at(str("target.", at))));
      optimizer.step();
    }
  }
  return parameters_of(*net, /*gradients=*/false);
}

// Returns the gradients of this process's micro-batch, reduced over the processes.
TensorDict reduced_gradients(const std::string& name, const TensorDict& data) {
  Accelerator accelerator(options_for(1));
  const auto net = model_of(name);
  torch::optim::SGD sgd(net->parameters(), 0.05);
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  net->eval();
  const std::int64_t at = accelerator.process().process_index;
  const TensorDict outputs = model(part(data, str("input.", at, '.')));
  accelerator.backward(loss_of(outputs, data.at(str("target.", at))));
  return parameters_of(*net, /*gradients=*/true);
}

TensorDict gradients_of_all_rows(const std::string& name, const TensorDict& data) {
  const auto net = model_of(name);
  net->eval();
  TensorDict rows = part(data, "input.0.");
  const TensorDict others = part(data, "input.1.");
  for (auto& [input, tensor] : rows) tensor = torch::cat({tensor, others.at(input)});
  loss_of(net->forward(rows), torch::cat({data.at("target.0"), data.at("target.1")})).backward();
  return parameters_of(*net, /*gradients=*/true);
}

// Returns the largest difference of a gradient, relative to the largest gradient.
double difference_of(const TensorDict& gradients, const TensorDict& expected) {
  double difference = 0, largest = 0;
  for (const auto& [name, gradient] : expected) {
    if (gradient.numel() == 0) continue;
    largest = std::max(largest, gradient.abs().max().item<double>());
    const at::Tensor other =
        gradients.contains(name) ? gradients.at(name) : torch::zeros_like(gradient);
    difference = std::max(difference, (gradient - other).abs().max().item<double>());
  }
  return largest > 0 ? difference / largest : difference;
}

bool has_dynamic_rows(const nlohmann::json& entry) {
  const auto& sizes = entry.at("dynamic");
  return std::find(sizes.begin(), sizes.end(), "batch") != sizes.end();
}

}  // namespace

TEST_CASE("exported: two processes train each architecture like one") {
  const TemporaryDirectory scratch;
  notebook_launcher(
      [&] {
        for (const auto& [name, entry] : architectures().items()) {
          const TensorDict data = data_of(name);
          const TensorDict weights = train(name, data), gradients = reduced_gradients(name, data);
          if (!Accelerator({.cpu = true}).is_main_process()) continue;
          save_safetensors(scratch.path() / (name + ".weights.safetensors"), weights);
          save_safetensors(scratch.path() / (name + ".gradients.safetensors"), gradients);
        }
      },
      {.num_processes = kParts, .use_cpu = true, .num_cpu_threads_per_process = 1});
  const int threads = at::get_num_threads();
  at::set_num_threads(1);  // as in the processes
  for (const auto& [name, entry] : architectures().items()) {
    CAPTURE(name);
    const TensorDict data = data_of(name);
    const TensorDict alone = train(name, data);
    const TensorDict together = load_safetensors(scratch.path() / (name + ".weights.safetensors"));
    REQUIRE(alone.size() == together.size());
    bool equal = true;
    for (const auto& [key, tensor] : alone) equal = equal && at::equal(tensor, together.at(key));
    CHECK(equal);
    record(name, "two_processes_equal", equal);
    if (!has_dynamic_rows(entry)) continue;
    const double difference =
        difference_of(load_safetensors(scratch.path() / (name + ".gradients.safetensors")),
                      gradients_of_all_rows(name, data));
    CHECK(difference <= kWholeBatchTolerance);
    record(name, "whole_batch_difference", difference);
  }
  at::set_num_threads(threads);
}

}  // namespace oracle_architecture_ranks_test
