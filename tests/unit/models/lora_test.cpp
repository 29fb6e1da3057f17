#include <ATen/autocast_mode.h>
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "hasten/exported/exported_module.h"
#include "hasten/formats/safetensors.h"
#include "hasten/models/bert.h"
#include "hasten/models/lora.h"
#include "hasten/trainer/estimate.h"
#include "unit/code_of.h"
#include "unit/models/lora_nets.h"

namespace models_lora_test {

using namespace hasten;
namespace nn = torch::nn;
using namespace hasten::lora_nets;

TEST_CASE("lora: every kind of linear layer of a user's module is adapted") {
  const auto net = new_net();
  const at::Tensor x = torch::randn({2, 3, 4}), plain = net->forward(x);
  CHECK(add_lora(*net, {.r = 2, .alpha = 6, .target_modules = {"all-linear"}}) ==
        std::vector<std::string>{"first", "blocks.0", "own", "last"});
  CHECK(at::equal(net->forward(x), plain));  // B is zero
  fill_b(*net);
  for (const at::Tensor& input : {x, x.reshape({6, 4}), x.select(1, 0)}) {
    CHECK(near(net->forward(input), expected_output(*net, input, 3)));
    CHECK_FALSE(near(net->forward(input), plain.reshape({6, 3}).slice(0, 0, 1), 0.1));
  }
  at::Tensor in_thread;
  std::thread([&] { in_thread = net->forward(x); }).join();
  CHECK(at::equal(in_thread, net->forward(x)));
  const c10::InferenceMode inference;
  CHECK(near(net->forward(x), expected_output(*net, x, 3)));
}

TEST_CASE("lora: gradients equal those of the adapted weights, and only A and B have them") {
  const auto net = new_net();
  add_lora(*net, {.r = 2, .alpha = 6, .target_modules = {"all-linear"}});
  fill_b(*net);
  const at::Tensor x = torch::randn({5, 4});
  net->forward(x).pow(2).sum().backward();
  TensorDict gradients;
  for (const auto& item : net->named_parameters()) {
    CAPTURE(item.key());
    const bool is_factor = item.key().find("lora_") != std::string::npos;
    CHECK(item.value().requires_grad() == is_factor);
    CHECK(item.value().grad().defined() == is_factor);
    if (is_factor) gradients[item.key()] = item.value().grad().clone();
  }
  net->zero_grad();
  expected_output(*net, x, 3).pow(2).sum().backward();
  for (const auto& [name, gradient] : gradients) {
    CAPTURE(name);
    CHECK(near(gradient, value_of(*net, name).grad(), 1e-3));
  }
}

TEST_CASE("lora: the adapter follows the module to other types and back") {
  const auto net = new_net();
  add_lora(*net, {.r = 2, .target_modules = {"all-linear"}});
  fill_b(*net);
  const at::Tensor x = torch::randn({5, 4}), y = net->forward(x);
  net->to(at::kDouble);
  CHECK(near(net->forward(x.to(at::kDouble)), y));
  net->to(at::kFloat);
  CHECK(near(net->forward(x), y));
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const at::Tensor mixed = net->forward(x);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  CHECK((mixed.scalar_type() == at::kBFloat16));
  CHECK(near(mixed.to(at::kFloat), y, 0.1));
}

TEST_CASE("lora: dropout applies to the input of A, in training only") {
  const auto net = new_net();
  add_lora(*net, {.r = 2, .dropout = 0.5, .target_modules = {"first"}});
  fill_b(*net);
  const at::Tensor x = torch::randn({50, 4});
  net->eval();
  CHECK(at::equal(net->forward(x), net->forward(x)));
  net->train();
  CHECK_FALSE(at::equal(net->forward(x), net->forward(x)));
}

TEST_CASE("lora: merging and unmerging keep what the module computes") {
  const auto net = new_net();
  add_lora(*net, {.r = 2, .target_modules = {"all-linear"}});
  fill_b(*net);
  const at::Tensor x = torch::randn({5, 4}), y = net->forward(x),
                   before = net->last->weight.detach().clone();
  merge_lora(*net);
  CHECK(near(net->forward(x), y));
  CHECK_FALSE(near(net->last->weight, before));
  CHECK(code_of([&] { merge_lora(*net); }) == "models.lora-merged");
  unmerge_lora(*net);
  CHECK(near(net->last->weight, before, 1e-6));
  CHECK(near(net->forward(x), y));
  CHECK(code_of([&] { unmerge_lora(*net); }) == "models.lora-merged");
  merge_lora(*net);
  remove_lora(*net);
  CHECK_FALSE(has_lora(*net));
  CHECK(near(net->forward(x), y));
  CHECK(net->named_parameters().size() == 6);
  CHECK(code_of([&] { merge_lora(*net); }) == "models.no-lora");
  add_lora(*net, {.r = 1, .target_modules = {"last"}});
  CHECK(near(net->forward(x), y));
}

TEST_CASE("lora: parameters keep their requires_grad when the adapters are removed") {
  const auto net = new_net();
  add_lora(*net, {.r = 2, .target_modules = {"first", "last"}});
  net->first->weight.set_requires_grad(true);
  remove_lora(*net);
  CHECK(net->first->weight.requires_grad());
  CHECK_FALSE(net->last->weight.requires_grad());
}

TEST_CASE("lora: sums of 16 bits are rounded once, in a product and in a merged weight") {
  // The weight is so large that the type has only even numbers there. The adapter adds a little
  // more than 1, and the type would round this number to 1.
  struct Case {
    at::ScalarType type;
    double weight, adds;
  };
  for (const Case& each : {Case{at::kBFloat16, 256, 1.003}, Case{at::kHalf, 2048, 1.0002}}) {
    CAPTURE(c10::toString(each.type));
    const auto net = std::make_shared<nn::LinearImpl>(nn::LinearOptions(1, 1).bias(false));
    net->to(each.type);
    add_lora(*net, {.r = 1, .alpha = 1, .target_modules = {"all-linear"}});
    const torch::NoGradGuard no_grad;
    net->weight.fill_(each.weight);
    value_of(*net, "lora_A.weight").fill_(1);
    value_of(*net, "lora_B.weight").fill_(each.adds);
    const at::Tensor x = at::ones({1, 1}, each.type);
    CHECK(net->forward(x).item<double>() == each.weight + 2);
    merge_lora(*net);
    CHECK(net->weight.item<double>() == each.weight + 2);
    CHECK(net->forward(x).item<double>() == each.weight + 2);
  }
}

TEST_CASE("lora: targets are paths, their last parts, or patterns, as in PEFT") {
  const BertConfig config{.vocab_size = 20,
                          .hidden_size = 8,
                          .num_hidden_layers = 2,
                          .num_attention_heads = 2,
                          .intermediate_size = 16};
  const auto paths = [&](const LoraOptions& options) {
    const auto model = std::make_shared<BertForSequenceClassification>(config);
    model->initialize();
    return add_lora(*model, options);
  };
  const std::string self = "bert.encoder.layer.1.attention.self.";
  CHECK(paths({}).size() == 4);  // query and value
  CHECK(paths({.target_modules = {self + "key"}}) == std::vector<std::string>{self + "key"});
  CHECK(paths({.target_modules = {"attention.output.dense"}}).size() == 2);
  CHECK(paths({.target_modules = {"dense"}}).size() == 7);  // including the pooler
  CHECK(paths({.target_modules = {".*layer\\.1\\..*(query|key)"}}).size() == 2);
  CHECK(paths({.target_modules = {"all-linear"}}).size() == 14);
  CHECK(paths({.target_modules = {"all-linear"}, .modules_to_save = {"classifier"}}).size() == 13);
}

TEST_CASE("lora: modules_to_save and biases train beside the adapters") {
  const auto trained = [](const LoraOptions& options) {
    const auto net = new_net();
    add_lora(*net, options);
    std::string names;
    for (const auto& item : net->named_parameters())
      if (item.value().requires_grad()) names += item.key() + " ";
    return names;
  };
  const std::string first = "first.lora_A.weight first.lora_B.weight ";
  CHECK(trained({.target_modules = {"first"}}) == first);
  CHECK(trained({.target_modules = {"first"}, .modules_to_save = {"last"}}) ==
        first + "last.weight last.bias ");
  const auto classifier =
      std::make_shared<BertForSequenceClassification>(BertConfig{.vocab_size = 20,
                                                                 .hidden_size = 8,
                                                                 .num_hidden_layers = 1,
                                                                 .num_attention_heads = 2,
                                                                 .intermediate_size = 16});
  add_lora(*classifier, {.target_modules = {"all-linear"}, .task_type = "SEQ_CLS"});
  CHECK(lora_options(*classifier).modules_to_save == std::vector<std::string>{"classifier"});
  CHECK(value_of(*classifier, "classifier.weight").requires_grad());
  CHECK(trained({.target_modules = {"first"}, .bias = LoraBias::lora_only}) ==
        "first.bias " + first);
  CHECK(trained({.target_modules = {"first"}, .bias = LoraBias::all}) ==
        "first.bias " + first + "last.bias ");
}

TEST_CASE("lora: invalid options are refused by name and leave the module unchanged") {
  const auto net = new_net();
  const auto refusal = [&](const LoraOptions& options) {
    try {
      add_lora(*net, options);
    } catch (const Error& error) {
      return error.code() + ": " + error.what();
    }
    return std::string("none");
  };
  const std::string near_name = refusal({.target_modules = {"fisrt"}});
  CHECK(near_name.starts_with("models.lora-target"));
  CHECK(near_name.find("did you mean first?") != std::string::npos);
  CHECK(refusal({.target_modules = {"first", "q_proj"}}).find("'q_proj'") != std::string::npos);
  CHECK(refusal({}).starts_with("models.lora-target"));  // the net has no query and value
  CHECK(refusal({.target_modules = {"first"}, .modules_to_save = {"lasst"}}).find("last") !=
        std::string::npos);
  CHECK(refusal({.target_modules = {"(first"}}).starts_with("models.lora-options"));
  CHECK(refusal({.r = 0, .target_modules = {"first"}}).starts_with("models.lora-options"));
  CHECK(refusal({.dropout = 1, .target_modules = {"first"}}).starts_with("models.lora-options"));
  CHECK_FALSE(has_lora(*net));
  for (const at::Tensor& parameter : net->parameters()) CHECK(parameter.requires_grad());
  add_lora(*net, {.target_modules = {"first"}});
  CHECK(refusal({.target_modules = {"last"}}).starts_with("models.lora-twice"));

  // Two modules have registered the same weight.
  const auto tied = std::make_shared<nn::Module>();
  const auto linear = tied->register_module("linear", nn::Linear(4, 4));
  tied->register_module("other", nn::Linear(4, 4));
  const auto table = tied->register_module("table", std::make_shared<nn::Module>());
  table->register_parameter("weight", linear->weight);
  CHECK(code_of([&] { add_lora(*tied, {.target_modules = {"linear"}}); }) == "models.lora-target");
  CHECK(add_lora(*tied, {.target_modules = {"all-linear"}}) == std::vector<std::string>{"other"});
}

TEST_CASE("lora: a module to save is trained if another module has its weight, too") {
  const auto tied = std::make_shared<nn::Module>();
  const auto linear = tied->register_module("linear", nn::Linear(4, 4));
  const auto other = tied->register_module("other", nn::Linear(4, 4));
  const auto table = tied->register_module("table", std::make_shared<nn::Module>());
  table->register_parameter("weight", linear->weight);
  add_lora(*tied, {.target_modules = {"other"}, .modules_to_save = {"linear"}});
  CHECK(linear->weight.requires_grad());
  CHECK(linear->bias.requires_grad());
  CHECK_FALSE(other->weight.requires_grad());
}

TEST_CASE("lora: an exported program is adapted by the paths of its modules") {
  const auto net = load_exported(HASTEN_TEST_DATA "/oracle/data/exported/mlp.pt2");
  net->eval();
  const at::Tensor x = torch::randn({4, 5});
  const TensorDict inputs = {{net->input_names().front(), x},
                             {"labels", torch::zeros({4}, at::kLong)}};
  const auto logits = [&] {
    for (const auto& [name, tensor] : net->forward(inputs))
      if (tensor.dim() == 2) return tensor;
    return at::Tensor();
  };
  const at::Tensor plain = logits();
  CHECK(add_lora(*net, {.r = 2, .target_modules = {"all-linear"}}).size() == 2);
  CHECK(at::equal(logits(), plain));
  fill_b(*net);
  const at::Tensor adapted = logits();
  CHECK_FALSE(near(adapted, plain, 1e-2));
  net->to(at::kDouble);
  net->to(at::kFloat);
  CHECK(near(logits(), adapted));
  merge_lora(*net);
  CHECK(near(logits(), adapted));
  CHECK(net->state_dict().size() == 6);  // without the adapters
  remove_lora(*net);
  CHECK(near(logits(), adapted));
  CHECK(code_of([&] { add_lora(*net, {.target_modules = {"net.3"}}); }) == "models.lora-target");
}

TEST_CASE("lora: a clone of an exported program has its own copy of the adapters") {
  const auto net = load_exported(HASTEN_TEST_DATA "/oracle/data/exported/mlp.pt2");
  net->eval();
  add_lora(*net, {.r = 2, .target_modules = {"all-linear"}});
  fill_b(*net);
  const at::Tensor x = torch::randn({4, 5}), y = net->forward(x).at("output");
  torch::manual_seed(4);
  const at::Tensor next = torch::rand({3});
  torch::manual_seed(4);
  const auto copy = std::dynamic_pointer_cast<ExportedModule>(net->clone());
  CHECK(at::equal(torch::rand({3}), next));
  REQUIRE(copy != nullptr);
  CHECK(has_lora(*copy));
  CHECK(near(copy->forward(x).at("output"), y));
  REQUIRE(copy->named_parameters().keys() == net->named_parameters().keys());
  for (const auto& item : net->named_parameters()) {
    CAPTURE(item.key());
    const at::Tensor other = value_of(*copy, item.key());
    CHECK(at::equal(other, item.value()));
    CHECK(other.data_ptr() != item.value().data_ptr());
    CHECK(other.requires_grad() == item.value().requires_grad());
  }
  merge_lora(*net);
  const auto merged = std::dynamic_pointer_cast<ExportedModule>(net->clone());
  CHECK(near(merged->forward(x).at("output"), y));
  unmerge_lora(*merged);
  CHECK(near(merged->forward(x).at("output"), y));
}

TEST_CASE(
    "lora: the memory of a step is predicted to the byte, and states exist for A and B only") {
  const TemporaryDirectory folder("hasten-lora");
  write_file_atomically(folder.path() / "config.json",
                        R"({"model_type": "bert", "vocab_size": 300, "hidden_size": 32,
                            "num_hidden_layers": 2, "num_attention_heads": 2,
                            "intermediate_size": 64, "max_position_embeddings": 64})");
  for (const bool bf16 : {false, true}) {
    CAPTURE(bf16);
    EstimateOptions options{.model = (folder.path() / "config.json").string(),
                            .length = 32,
                            .lora = {.r = 4,
                                     .dropout = 0.1,
                                     .target_modules = {"all-linear"},
                                     .modules_to_save = {"classifier"}}};
    options.arguments.per_device_train_batch_size = 2;
    options.arguments.max_grad_norm = 1e-3;
    options.arguments.bf16 = bf16;
    const anatomy::Memory predicted = estimate(options).memory;
    options.dry = false;
    const anatomy::Memory measured = estimate(options).memory;
    CHECK(predicted.peak == measured.peak);
    CHECK(predicted.at_peak == measured.at_peak);
    CHECK(predicted.after == measured.after);
    // AdamW has two numbers for each parameter of the 13 layers and of the classifier, and a step
    // count for each tensor.
    const auto states = static_cast<std::size_t>(anatomy::Component::optimizer_states);
    const std::int64_t trained = 4 * (2 * (4 * (32 + 32) + 2 * (32 + 64)) + (32 + 32)) + 2 * 32 + 2;
    CHECK(measured.trained_parameters == trained);
    CHECK(measured.max_bytes[states] >= 8 * trained);
    CHECK(measured.max_bytes[states] <= 8 * trained + 8 * 28);
  }
}

TEST_CASE("lora: an anatomy counts the products of the weight and of the adapter") {
  const auto flops = [](bool adapts, const at::Tensor& x) {
    const auto net = std::make_shared<nn::LinearImpl>(4, 7);
    if (adapts) add_lora(*net, {.r = 2, .target_modules = {"all-linear"}});
    Accelerator accelerator({.cpu = true});
    auto [model] = accelerator.prepare(net);
    Anatomy anatomy = accelerator.anatomy({.steps = 1});
    (void)model(x);
    anatomy.step();
    double sum = 0;
    for (const anatomy::Operation& each : anatomy.report().operations)
      if (each.group == anatomy::OperationGroup::tensor_contraction) sum += each.flops;
    return sum;
  };
  for (const at::Tensor& x : {torch::randn({6, 4}), torch::randn({2, 3, 4})}) {
    CHECK(flops(false, x) == 2 * 6 * 4 * 7);
    CHECK(flops(true, x) == 2 * 6 * (4 * 7 + 4 * 2 + 2 * 7));
  }
}

}  // namespace models_lora_test
