// Runs real steps of small models: every byte has a purpose, and the figures equal figures that
// were computed by hand.
#include "hasten/anatomy/anatomy.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "device/device.h"
#include "hasten/accelerator.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/machine/gpus.h"
#include "hasten/models/bert.h"
#include "hasten/optim/adamw.h"
#include "unit/code_of.h"

namespace anatomy_anatomy_test {

using namespace hasten;
using anatomy::Component;
using anatomy::OperationGroup;
using anatomy::Phase;
using anatomy::Report;

namespace {

struct TwoLayersImpl : torch::nn::Module {
  TwoLayersImpl()
      : up(register_module("up", torch::nn::Linear(64, 256))),
        down(register_module("down", torch::nn::Linear(256, 8))) {}
  at::Tensor forward(const at::Tensor& x) { return down(torch::gelu(up(x))); }
  torch::nn::Linear up, down;
};
TORCH_MODULE(TwoLayers);
constexpr std::int64_t kParameters = 64 * 256 + 256 + 256 * 8 + 8;

template <class Optimizer>
Report report_of(Optimizer& raw, TwoLayers& net, Accelerator& accelerator, std::int64_t steps) {
  std::vector<at::Tensor> batches;
  for (std::int64_t i = 0; i < steps; ++i) batches.push_back(at::randn({32, 64}));
  auto [model, optimizer, loader] = accelerator.prepare(net, raw, batches);
  auto anatomy = accelerator.anatomy({.steps = 0});
  for (auto& x : loader) {
    const at::Tensor loss = model(x).square().mean();
    accelerator.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
  }
  return anatomy.report();
}

anatomy::OperationTotal total_named(const Report& report, const std::string& name, Phase phase) {
  anatomy::OperationTotal total;
  for (const auto& each : report.operations) {
    if (each.name == name && each.phase == phase) total += each;
  }
  return total;
}

}  // namespace

TEST_CASE("anatomy: every byte at the peak has a purpose, with AdamW and with SGD") {
  Accelerator accelerator({.cpu = true});
  {
    TwoLayers net;
    AdamW adamw(net->parameters(), torch::optim::AdamWOptions(1e-3));
    const Report report = report_of(adamw, net, accelerator, 3);
    CHECK(report.steps == 3);
    CHECK(report.samples == 96);
    CHECK(report.memory.parameters == kParameters);
    CHECK(bytes_of(report.memory.at_peak, Component::model_weights) == 4 * kParameters);
    CHECK(bytes_of(report.memory.at_peak, Component::optimizer_states) == 8 * kParameters);
    CHECK(bytes_of(report.memory.at_peak, Component::unknown) == 0);
    CHECK(anatomy::total(report.memory.at_peak) == report.memory.peak);
    // x is the batch; gelu saves its input [32, 256] and its output for the next layer.
    CHECK(bytes_of(report.memory.at_peak, Component::activations) >= 2 * 32 * 256 * 4);
    CHECK(bytes_of(report.memory.at_peak, Component::functionality) >= 32 * 64 * 4);
  }
  TwoLayers net;
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
  const Report report = report_of(sgd, net, accelerator, 2);
  CHECK(bytes_of(report.memory.at_peak, Component::optimizer_states) == 0);
  CHECK(bytes_of(report.memory.at_peak, Component::unknown) == 0);
}

TEST_CASE("anatomy: each layer has its own memory") {
  Accelerator accelerator({.cpu = true});
  TwoLayers net;
  AdamW adamw(net->parameters(), torch::optim::AdamWOptions(1e-3));
  const Report report = report_of(adamw, net, accelerator, 2);
  std::map<std::string, anatomy::ComponentBytes> layers;
  for (const auto& each : report.memory.modules) layers[each.module] = each.at_peak;
  REQUIRE(layers.count("up") == 1);
  REQUIRE(layers.count("down") == 1);
  CHECK(bytes_of(layers["up"], Component::model_weights) == 4 * (64 * 256 + 256));
  CHECK(bytes_of(layers["up"], Component::optimizer_states) == 8 * (64 * 256 + 256));
  CHECK(bytes_of(layers["down"], Component::model_weights) == 4 * (256 * 8 + 8));
}

TEST_CASE("anatomy: operations have three groups, and the backward pass takes twice as many") {
  Accelerator accelerator({.cpu = true});
  TwoLayers net;
  AdamW adamw(net->parameters(), torch::optim::AdamWOptions(1e-3));
  const Report report = report_of(adamw, net, accelerator, 1);
  const double products = 2.0 * 32 * (64 * 256 + 256 * 8);
  CHECK(total_named(report, "aten::addmm", Phase::forward).flops == products);
  CHECK(total_named(report, "aten::addmm", Phase::forward).count == 2);
  // The batch needs no gradient, which saves one product.
  CHECK(total_named(report, "aten::mm", Phase::backward).flops ==
        2 * products - 2.0 * 32 * 64 * 256);
  const auto gelu = total_named(report, "aten::gelu", Phase::forward);
  CHECK(gelu.bytes_read == 32 * 256 * 4);
  CHECK(gelu.bytes_written == 32 * 256 * 4);
  CHECK(total_of(report, OperationGroup::tensor_contraction).flops ==
        3 * products - 2.0 * 32 * 64 * 256);
  CHECK(total_of(report, Phase::optimizer).flops >= 14.0 * kParameters);
  CHECK_MESSAGE(report.without_formula.empty(), hasten::anatomy::to_text(report));
}

TEST_CASE("anatomy: it records the requested steps and then stops") {
  Accelerator accelerator({.cpu = true});
  TwoLayers net;
  AdamW adamw(net->parameters(), torch::optim::AdamWOptions(1e-3));
  std::vector<at::Tensor> batches(5, at::randn({4, 64}));
  auto [model, optimizer, loader] = accelerator.prepare(net, adamw, batches);
  auto anatomy = accelerator.anatomy({.steps = 2});
  int steps = 0;
  for (auto& x : loader) {
    accelerator.backward(model(x).square().mean());
    optimizer.step();
    optimizer.zero_grad();
    CHECK(anatomy.finished() == (++steps >= 2));
  }
  CHECK(anatomy.report().steps == 2);
}

TEST_CASE("anatomy: a nested Anatomy is refused, and a consecutive one is not") {
  Accelerator accelerator({.cpu = true});
  {
    const auto first = accelerator.anatomy();
    CHECK(code_of([&] { (void)accelerator.anatomy(); }) == "anatomy.nested");
  }
  CHECK(code_of([&] { (void)accelerator.anatomy(); }) == "none");
}

TEST_CASE("anatomy: training gives the same numbers with and without it") {
  const auto train = [](bool recorded) {
    torch::manual_seed(3);
    Accelerator accelerator({.gradient_accumulation_steps = 3, .cpu = true});
    TwoLayers net;
    AdamW adamw(net->parameters(), torch::optim::AdamWOptions(1e-2));
    std::vector<at::Tensor> batches;
    for (int i = 0; i < 9; ++i) batches.push_back(at::randn({8, 64}));
    auto [model, optimizer, loader] = accelerator.prepare(net, adamw, batches);
    std::optional<Anatomy> anatomy;
    if (recorded) anatomy.emplace(accelerator.anatomy());
    for (auto& x : loader) {
      const auto window = accelerator.accumulate(model);
      accelerator.backward(model(x).square().mean() * 0.3, 1 + x.size(0) % 3);
      optimizer.step();
      optimizer.zero_grad();
    }
    return net->up->weight.detach().clone();
  };
  CHECK(at::equal(train(false), train(true)));
}

TEST_CASE("anatomy: training frees its memory when its objects are destroyed") {
  Accelerator accelerator({.cpu = true});
  auto anatomy = accelerator.anatomy({.steps = 0});
  {
    auto net = std::make_shared<TwoLayersImpl>();
    auto adamw = std::make_shared<AdamW>(net->parameters(), torch::optim::AdamWOptions(1e-3));
    auto [model, optimizer] = accelerator.prepare(net, adamw);
    for (int i = 0; i < 2; ++i) {
      accelerator.backward(model(at::randn({8, 64})).square().mean());
      optimizer.step();
      optimizer.zero_grad();
    }
    accelerator.free_memory(model, optimizer);
  }
  CHECK(anatomy.report().memory.after == 0);
}

TEST_CASE("anatomy: a plain loop without an Accelerator marks its phases itself") {
  TwoLayers net;
  torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(1e-3));
  Anatomy anatomy;
  anatomy.watch(*net);
  anatomy.watch(adamw);
  for (int i = 0; i < 3; ++i) {
    const at::Tensor x = at::randn({8, 64});
    anatomy.watch_batch({x});
    at::Tensor loss;
    {
      const auto phase = anatomy.forward();
      loss = net(x).square().mean();
    }
    {
      const auto phase = anatomy.backward();
      loss.backward();
    }
    {
      const auto phase = anatomy.optimizer();
      adamw.step();
    }
    anatomy.step();
    adamw.zero_grad();
  }
  const Report report = anatomy.report();
  CHECK(bytes_of(report.memory.at_peak, Component::optimizer_states) == 8 * kParameters);
  CHECK(bytes_of(report.memory.at_peak, Component::unknown) == 0);
}

TEST_CASE("anatomy: optimizer states belong to layers, whether watched or shared") {
  const auto states_by_layer = [](bool shared) {
    TwoLayers net;
    const auto adamw =
        std::make_shared<torch::optim::AdamW>(net->parameters(), torch::optim::AdamWOptions(1e-3));
    const auto observers = std::make_shared<StepObservers>();
    if (shared) observers->add_optimizer(adamw);
    Anatomy anatomy({.steps = 0}, observers);
    anatomy.watch(*net);
    if (!shared) anatomy.watch(*adamw);
    for (int i = 0; i < 2; ++i) {
      at::Tensor loss;
      {
        const auto phase = anatomy.forward();
        loss = net(at::ones({8, 64})).square().mean();
      }
      {
        const auto phase = anatomy.backward();
        loss.backward();
      }
      {
        const auto phase = anatomy.optimizer();
        adamw->step();
      }
      anatomy.step();
    }
    std::map<std::string, std::int64_t> layers;
    for (const auto& each : anatomy.report().memory.modules)
      layers[each.module] = bytes_of(each.at_peak, Component::optimizer_states);
    return layers;
  };
  const auto watched = states_by_layer(false);
  CHECK(watched == states_by_layer(true));
  REQUIRE(watched.count("up") == 1);
  CHECK(watched.at("up") == 8 * (64 * 256 + 256));
}

TEST_CASE("anatomy: the report has a text and a JSON form") {
  Accelerator accelerator({.cpu = true});
  TwoLayers net;
  AdamW adamw(net->parameters(), torch::optim::AdamWOptions(1e-3));
  const Report report = report_of(adamw, net, accelerator, 1);
  const std::string text = to_text(report);
  for (const char* word :
       {"model_weights", "tensor_contraction", "per parameter", "up", "aten::addmm"})
    CHECK_MESSAGE(text.find(word) != std::string::npos, word);
  const auto json = nlohmann::json::parse(to_json(report));
  CHECK(json["memory"]["peak"] == report.memory.peak);
  CHECK(json["memory"]["at_peak"]["model_weights"] == 4 * kParameters);
  CHECK(json["groups"]["tensor_contraction"]["flops"] ==
        total_of(report, OperationGroup::tensor_contraction).flops);
  CHECK(json["memory"]["timeline"].size() >= 2);
}

TEST_CASE("anatomy: attention's products belong to the module that owns their operands") {
  const DryRun dry;
  auto config = *BertConfig::by_name("bert-base");
  config.num_hidden_layers = 1;
  auto [model] = Accelerator({.cpu = true}).prepare(std::make_shared<BertModel>(config));
  Anatomy anatomy;
  anatomy.watch(*model);
  {
    const PhaseScope phase = anatomy.forward();
    model(TensorDict{{"input_ids", at::ones({2, 16}, at::kLong)}});
  }
  std::set<std::string> modules;
  for (const anatomy::Operation& each : anatomy.report().operations) {
    if (each.name == "hasten::attention") modules.insert(each.module);
  }
  CHECK(modules == std::set<std::string>{"encoder.layer.0.attention.self"});
}

TEST_CASE("anatomy: a trace has every call and a lane of memory, ordered by time") {
  Anatomy anatomy;
  const at::Tensor weight = at::ones({64, 64}).requires_grad_();
  {
    const PhaseScope phase = anatomy.forward();
    at::mm(at::ones({8, 64}), weight).sum();
  }
  const auto trace = nlohmann::json::parse(to_trace(anatomy.report()));
  std::int64_t products = 0, counters = 0;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "X" && event["name"] == "aten::mm") {
      ++products;
      CHECK(event["cat"] == "tensor_contraction");
      CHECK(event["dur"] > 0);
      CHECK(event["ts"] > 0);
    }
    if (event["ph"] == "C") {
      ++counters;
      CHECK(event["args"].size() == anatomy::kComponents);
    }
  }
  CHECK(products == 1);
  CHECK(counters > 0);
}

TEST_CASE("anatomy: no step beats its roofs, and utilization is the achieved share") {
  anatomy::Report report;
  report.steps = 2;
  report.seconds = 8;
  report.roofs = {.flops_per_second = 100, .bf16_flops_per_second = 200, .bytes_per_second = 10};
  report.operations.push_back(
      {.name = "product", .phase = anatomy::Phase::forward, .flops = 400, .half_flops = 200});
  report.operations.push_back(
      {.name = "copy", .phase = anatomy::Phase::optimizer, .bytes_read = 20, .bytes_written = 10});
  CHECK(min_step_seconds(report) == doctest::Approx((2 + 1 + 3) / 2.0));
  CHECK(model_flops_utilization(report) == doctest::Approx(3.0 / 8));
  report.roofs = {};
  CHECK(min_step_seconds(report) == 0);
  CHECK(model_flops_utilization(report) == 0);
}

namespace {

// The CPU, with the name that a GPU has.
struct NamedDevice final : Device {
  explicit NamedDevice(std::string given)
      : Device(at::kCPU, device_of(at::kCPU).traits()), name(std::move(given)) {}
  std::string driver_name(int) const override { return name; }
  std::string name;
};

anatomy::Report report_on(const std::string& name) {
  const NamedDevice device(name);
  const DeviceReplacement replacement(device);
  torch::nn::Linear layer(4, 4);
  Anatomy anatomy({.steps = 0});
  anatomy.watch(*layer);
  {
    const PhaseScope phase = anatomy.forward();
    layer(at::ones({2, 4}));
  }
  return anatomy.report();
}

bool has_note(const anatomy::Report& report, const std::string& text) {
  return std::any_of(report.notes.begin(), report.notes.end(),
                     [&](const std::string& note) { return note.find(text) != note.npos; });
}

}  // namespace

TEST_CASE("anatomy: the report of a GPU has the roofs of its data sheet and names the source") {
  const anatomy::Report known = report_on("NVIDIA H200");
  const Gpu& h200 = find_gpu("cuda:h200");
  CHECK(known.roofs.flops_per_second == h200.flops_per_second);
  CHECK(known.roofs.bf16_flops_per_second == h200.bf16_flops_per_second);
  CHECK(known.roofs.bytes_per_second == h200.bytes_per_second);
  CHECK(known.roofs.source == "the data sheet of the H200");
  CHECK(to_text(known).find("Roofline, from the data sheet of the H200: 66.9 TFLOP/s float") !=
        std::string::npos);
  const auto json = nlohmann::json::parse(to_json(known));
  CHECK(json["roofs"]["source"].get<std::string>() == known.roofs.source);
  CHECK_FALSE(has_note(known, "MFU"));
  const anatomy::Report other = report_on("NVIDIA H100 PCIe");
  CHECK(other.roofs.flops_per_second == 0);
  CHECK(has_note(other, "hasten does not know the peaks of NVIDIA H100 PCIe"));
  CHECK_FALSE(has_note(report_on(""), "MFU"));
  CHECK(find_gpu_of_driver("NVIDIA A100-SXM4-80GB") == &find_gpu("cuda:a100-80gb"));
  CHECK(find_gpu_of_driver("Tesla T4") == &find_gpu("cuda:t4"));
  CHECK(find_gpu_of_driver("NVIDIA H200 MIG 1g.18gb") == nullptr);
}

TEST_CASE("anatomy: caches of keys and values are separate from temporary memory") {
  const torch::NoGradGuard no_grad;
  const std::int64_t width = 64, steps = 20;
  torch::nn::Linear qkv(width, 3 * width);
  Anatomy anatomy({.steps = 0});
  anatomy.watch(*qkv);
  at::Tensor keys = at::empty({1, 0, width}), values = keys;
  for (std::int64_t i = 0; i < steps; ++i) {  // one token at a time
    const PhaseScope phase = anatomy.forward();
    const auto parts = qkv(at::ones({1, 1, width})).chunk(3, -1);
    keys = at::cat({keys, parts[1]}, 1);
    values = at::cat({values, parts[2]}, 1);
    anatomy.watch_functionality({keys, values});
    at::matmul(at::softmax(at::matmul(parts[0], keys.transpose(1, 2)), -1), values);
  }
  const anatomy::Memory memory = anatomy.report().memory;
  const std::int64_t caches = 2 * steps * width * 4;
  CHECK(bytes_of(memory.at_peak, anatomy::Component::functionality) >= caches - 2 * width * 4);
  CHECK(bytes_of(memory.at_peak, anatomy::Component::activations) == 0);
  CHECK(bytes_of(memory.at_peak, anatomy::Component::unknown) == 0);
}

}  // namespace anatomy_anatomy_test
