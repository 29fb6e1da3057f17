#include "hasten/models/lora.h"

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
#include "hasten/models/linear_layers.h"
#include "hasten/trainer/estimate.h"
#include "unit/code_of.h"

namespace models_lora_test {

using namespace hasten;
namespace nn = torch::nn;

namespace {

// A module as a user writes it: LibTorch's layers, one in a Sequential, and an own linear layer.
struct OwnLinear : nn::Module, LinearLayers {
  at::Tensor weight = register_parameter("weight", torch::randn({5, 6}));
  at::Tensor forward(const at::Tensor& x) { return at::matmul(x, weight.t()); }
  std::vector<LinearLayer> linear_layers() const override { return {{}}; }
  void set_linear_weight(const std::string&, const at::Tensor& tensor) override { weight = tensor; }
};

struct UserNet : nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    return last->forward(own->forward(blocks->forward(at::gelu(first(x)))));
  }
  nn::Linear first = register_module("first", nn::Linear(4, 7));
  nn::Sequential blocks = register_module(
      "blocks", nn::Sequential(nn::Linear(nn::LinearOptions(7, 6).bias(false)), nn::Tanh()));
  std::shared_ptr<OwnLinear> own = register_module("own", std::make_shared<OwnLinear>());
  nn::Linear last = register_module("last", nn::Linear(5, 3));
};

std::shared_ptr<UserNet> new_net() {
  torch::manual_seed(3);
  return std::make_shared<UserNet>();
}

// Gives every B random numbers, without which an adapter changes nothing.
void fill_b(const nn::Module& module) {
  torch::manual_seed(5);
  const torch::NoGradGuard no_grad;
  for (const auto& item : module.named_parameters())
    if (item.key().ends_with("lora_B.weight")) at::Tensor(item.value()).normal_(0, 0.5);
}

at::Tensor value_of(const nn::Module& module, const std::string& name) {
  return module.named_parameters()[name];
}

// The weight with the adapter's product added.
at::Tensor adapted_weight(const nn::Module& module, const std::string& layer, double scale) {
  return value_of(module, layer + ".weight").detach().clone() +
         scale * at::mm(value_of(module, layer + ".lora_B.weight"),
                        value_of(module, layer + ".lora_A.weight"));
}

at::Tensor by_hand(const UserNet& net, const at::Tensor& x, double scale) {
  const auto weight = [&](const char* layer) { return adapted_weight(net, layer, scale); };
  at::Tensor y = at::gelu(at::linear(x, weight("first"), value_of(net, "first.bias")));
  y = at::tanh(at::linear(y, weight("blocks.0")));
  return at::linear(at::linear(y, weight("own")), weight("last"), value_of(net, "last.bias"));
}

bool near(const at::Tensor& a, const at::Tensor& b, double tolerance = 1e-5) {
  return (a - b).abs().max().item<double>() <= tolerance;
}

}  // namespace

TEST_CASE("lora: every kind of linear layer of a user's module is adapted") {
  const auto net = new_net();
  const at::Tensor x = torch::randn({2, 3, 4}), plain = net->forward(x);
  CHECK(add_lora(*net, {.r = 2, .alpha = 6, .target_modules = {"all-linear"}}) ==
        std::vector<std::string>{"first", "blocks.0", "own", "last"});
  CHECK(at::equal(net->forward(x), plain));  // B is zero
  fill_b(*net);
  for (const at::Tensor& input : {x, x.reshape({6, 4}), x.select(1, 0)}) {
    CHECK(near(net->forward(input), by_hand(*net, input, 3)));
    CHECK_FALSE(near(net->forward(input), plain.reshape({6, 3}).slice(0, 0, 1), 0.1));
  }
  at::Tensor in_thread;
  std::thread([&] { in_thread = net->forward(x); }).join();
  CHECK(at::equal(in_thread, net->forward(x)));
  const c10::InferenceMode inference;
  CHECK(near(net->forward(x), by_hand(*net, x, 3)));
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
  by_hand(*net, x, 3).pow(2).sum().backward();
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

TEST_CASE("lora: sums of 16 bits are rounded once, in a product and in a merged weight") {
  // The weight is so large that the type has even numbers only there. The adapter adds a little more
  // than 1, which the type cannot tell from 1.
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
  CHECK(paths({.target_modules = {"dense"}}).size() == 7);  // and the pooler
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

TEST_CASE("lora: what does not fit is refused by name, and the module stays as it is") {
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
  CHECK(refusal({}).starts_with("models.lora-target"));  // no query and value
  CHECK(refusal({.target_modules = {"first"}, .modules_to_save = {"lasst"}}).find("last") !=
        std::string::npos);
  CHECK(refusal({.target_modules = {"(first"}}).starts_with("models.lora-options"));
  CHECK(refusal({.r = 0, .target_modules = {"first"}}).starts_with("models.lora-options"));
  CHECK(refusal({.dropout = 1, .target_modules = {"first"}}).starts_with("models.lora-options"));
  CHECK_FALSE(has_lora(*net));
  for (const at::Tensor& parameter : net->parameters()) CHECK(parameter.requires_grad());
  add_lora(*net, {.target_modules = {"first"}});
  CHECK(refusal({.target_modules = {"last"}}).starts_with("models.lora-twice"));

  // A weight that two modules have registered.
  const auto tied = std::make_shared<nn::Module>();
  const auto linear = tied->register_module("linear", nn::Linear(4, 4));
  tied->register_module("other", nn::Linear(4, 4));
  const auto table = tied->register_module("table", std::make_shared<nn::Module>());
  table->register_parameter("weight", linear->weight);
  CHECK(code_of([&] { add_lora(*tied, {.target_modules = {"linear"}}); }) == "models.lora-target");
  CHECK(add_lora(*tied, {.target_modules = {"all-linear"}}) == std::vector<std::string>{"other"});
}

TEST_CASE("lora: files have PEFT's names, and another model reads them") {
  const TemporaryDirectory folder("hasten-lora");
  const auto net = new_net();
  add_lora(*net, {.r = 2,
                  .alpha = 6,
                  .target_modules = {"first", "blocks.0"},
                  .modules_to_save = {"last"},
                  .bias = LoraBias::lora_only,
                  .task_type = "SEQ_CLS"});
  fill_b(*net);
  const torch::NoGradGuard no_grad;
  net->last->weight.add_(1);
  net->first->bias.add_(1);
  save_lora(*net, folder.path());
  std::string names;
  for (const auto& [name, tensor] : load_safetensors(folder.path() / "adapter_model.safetensors"))
    names += name + "\n";
  CHECK(names ==
        "base_model.model.blocks.0.lora_A.weight\n"
        "base_model.model.blocks.0.lora_B.weight\n"
        "base_model.model.first.base_layer.bias\n"
        "base_model.model.first.lora_A.weight\n"
        "base_model.model.first.lora_B.weight\n"
        "base_model.model.last.bias\n"
        "base_model.model.last.weight\n");
  const auto config = nlohmann::json::parse(read_file(folder.path() / "adapter_config.json"));
  CHECK(config.at("peft_type") == "LORA");
  CHECK(config.at("task_type") == "SEQ_CLS");
  CHECK(config.at("target_modules") == nlohmann::json::array({"first", "blocks.0"}));
  CHECK(config.at("lora_alpha") == 6);

  const auto other = new_net();
  load_lora(*other, folder.path());
  const at::Tensor x = torch::randn({5, 4});
  CHECK(at::equal(other->forward(x), net->forward(x)));
  CHECK(lora_options(*other).bias == LoraBias::lora_only);
  other->last->weight.zero_();
  load_lora(*other, folder.path());  // into the adapters that are there
  CHECK(at::equal(other->forward(x), net->forward(x)));

  // Adapters of another rank, and of another scale.
  for (const LoraOptions& options :
       {LoraOptions{.r = 3, .alpha = 6}, LoraOptions{.r = 2, .alpha = 3},
        LoraOptions{.r = 2, .alpha = 6, .use_rslora = true}}) {
    const auto different = std::make_shared<UserNet>();
    LoraOptions all = options;
    all.target_modules = {"first", "blocks.0"};
    all.modules_to_save = {"last"};
    all.bias = LoraBias::lora_only;
    add_lora(*different, all);
    const at::Tensor y = different->forward(x);
    CHECK(code_of([&] { load_lora(*different, folder.path()); }) == "models.lora-file");
    CHECK(at::equal(different->forward(x), y));
  }
  merge_lora(*other);
  CHECK(code_of([&] { load_lora(*other, folder.path()); }) == "models.lora-merged");
  write_file_atomically(folder.path() / "adapter_config.json",
                        R"({"peft_type": "LORA", "target_modules": ["first"], "use_dora": true})");
  const auto third = new_net();
  CHECK(code_of([&] { load_lora(*third, folder.path()); }) == "models.lora-file");
  CHECK_FALSE(has_lora(*third));
}

TEST_CASE("lora: a file that does not fit leaves the module as it was") {
  const TemporaryDirectory folder("hasten-lora");
  const auto net = new_net();
  add_lora(*net, {.r = 2, .target_modules = {"first"}});
  save_lora(*net, folder.path());
  TensorDict tensors = load_safetensors(folder.path() / "adapter_model.safetensors");
  tensors["base_model.model.other.lora_A.weight"] = torch::zeros({2, 4});
  save_safetensors(folder.path() / "adapter_model.safetensors", tensors);
  const auto other = new_net();
  other->last->weight.set_requires_grad(false);
  const at::Tensor x = torch::randn({5, 4}), y = other->forward(x).detach();
  CHECK(code_of([&] { load_lora(*other, folder.path()); }) == "models.lora-file");
  CHECK_FALSE(has_lora(*other));
  CHECK(at::equal(other->forward(x), y));
  for (const auto& item : other->named_parameters()) {
    CAPTURE(item.key());
    CHECK(item.value().requires_grad() == (item.key() != "last.weight"));
  }
}

TEST_CASE("lora: each key of PEFT's file is checked, and the rank before it takes memory") {
  const TemporaryDirectory folder("hasten-lora");
  const auto net = new_net();
  add_lora(*net, {.r = 2, .target_modules = {"first"}});
  save_lora(*net, folder.path());
  const auto file = folder.path() / "adapter_config.json";
  const auto whole = nlohmann::json::parse(read_file(file));
  for (const auto& [key, value] : std::vector<std::pair<std::string, nlohmann::json>>{
           {"r", 4'000'000'000'000'000},
           {"r", "2"},
           {"r", 2.5},
           {"lora_alpha", "6"},
           {"target_modules", nlohmann::json::array()},
           {"target_modules", {"first", 1}},
           {"target_modules", 3},
           {"bias", "some"},
           {"task_type", 1},
           {"peft_type", "IA3"},
           {"rank_pattern", {{"first", 3}}}}) {
    CAPTURE(key);
    CAPTURE(value);
    auto config = whole;
    config[key] = value;
    write_file_atomically(file, config.dump());
    const auto other = new_net();
    try {
      load_lora(*other, folder.path());
      FAIL_CHECK("it was accepted");
    } catch (const DataError& error) {
      CHECK(error.code() == "models.lora-file");
      CHECK(error.text().what == file.string() + ", key " + key);
    }
    CHECK_FALSE(has_lora(*other));
  }
  for (const char* text : {"[]", "{", "{\"r\": 2, \"r\": 2}"}) {
    write_file_atomically(file, text);
    CHECK(code_of([&] { load_lora(*new_net(), folder.path()); }) == "models.lora-file");
  }
  std::filesystem::remove(file);
  CHECK(code_of([&] { load_lora(*new_net(), folder.path()); }) == "io.not-found");
}

TEST_CASE("lora: an initialization that changes the model's own weights is refused") {
  const TemporaryDirectory folder("hasten-lora");
  const auto net = new_net();
  add_lora(*net, {.r = 2, .target_modules = {"first"}});
  save_lora(*net, folder.path());
  const auto file = folder.path() / "adapter_config.json";
  auto config = nlohmann::json::parse(read_file(file));
  const auto code_for = [&](const nlohmann::json& initialization) {
    config["init_lora_weights"] = initialization;
    write_file_atomically(file, config.dump());
    return code_of([&] { load_lora(*new_net(), folder.path()); });
  };
  for (const char* const changing :
       {"pissa", "pissa_niter_16", "olora", "corda", "loftq", "lora_ga"})
    CHECK(code_for(changing) == "models.lora-file");
  for (const nlohmann::json& plain :
       std::vector<nlohmann::json>{true, false, nullptr, "gaussian", "orthogonal", "eva"})
    CHECK(code_for(plain) == "none");
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
    // AdamW has two numbers for each parameter of the 13 layers and of the classifier, and a step count
    // for each tensor.
    const auto states = static_cast<std::size_t>(anatomy::Component::optimizer_states);
    const std::int64_t trained = 4 * (2 * (4 * (32 + 32) + 2 * (32 + 64)) + (32 + 32)) + 2 * 32 + 2;
    CHECK(measured.trained_parameters == trained);
    CHECK(measured.most[states] >= 8 * trained);
    CHECK(measured.most[states] <= 8 * trained + 8 * 28);
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
