// Models with recomputed layers have the same losses and gradients as without recomputation.
#include "hasten/models/recomputation.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/exported/exported_module.h"
#include "hasten/models/bert.h"
#include "hasten/models/gpt2.h"
#include "hasten/models/llama.h"
#include "hasten/models/resnet.h"
#include "hasten/models/vit.h"
#include "unit/code_of.h"

namespace models_recomputation_test {

using namespace hasten;
using at::Tensor;

namespace {

const std::filesystem::path kPrograms = HASTEN_TEST_DATA "/oracle/data/exported";

BertConfig small_bert() {
  return {.vocab_size = 60,
          .hidden_size = 32,
          .num_hidden_layers = 4,
          .num_attention_heads = 2,
          .intermediate_size = 64,
          .max_position_embeddings = 16};
}

TensorDict texts(bool padded) {
  torch::manual_seed(11);
  const Tensor ids = at::randint(5, 60, {4, 12});
  Tensor mask = at::ones_like(ids);
  if (padded) {
    for (std::int64_t row = 0; row < 4; ++row) mask[row].narrow(0, 12 - 2 * row, 2 * row).zero_();
  }
  return {{"input_ids", ids}, {"attention_mask", mask}, {"labels", at::randint(0, 2, {4})}};
}

// Returns all losses of two windows of two micro-batches, and then the gradients, the weights and
// the buffers.
template <class Model, class Loss>
std::vector<Tensor> trained(const std::shared_ptr<Model>& module, Precision precision, Loss loss) {
  torch::manual_seed(5);
  module->train();
  Accelerator accelerator(
      {.mixed_precision = precision, .gradient_accumulation_steps = 2, .cpu = true});
  torch::optim::SGD sgd(module->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  auto [model, optimizer] = accelerator.prepare(module, sgd);
  std::vector<Tensor> numbers;
  for (int batch = 0; batch < 4; ++batch) {
    const auto window = accelerator.accumulate(model);
    const Tensor value = loss(model);
    accelerator.backward(value);
    numbers.push_back(value.detach().clone());
    if (batch < 3) continue;
    for (const Tensor& each : module->parameters()) numbers.push_back(each.grad().clone());
    optimizer.step();
    optimizer.zero_grad();
  }
  for (const Tensor& each : module->parameters()) numbers.push_back(each.detach().clone());
  for (const Tensor& each : module->buffers()) numbers.push_back(each.clone());
  return numbers;
}

void check_same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    REQUIRE(a[i].defined() == b[i].defined());
    if (a[i].defined()) CHECK(torch::equal(a[i], b[i]));
  }
}

const std::vector<Recomputation> kKinds = {
    {}, {.policy = RecomputePolicy::selective}, {.every_n_layers = 2}};

// Compares a model with each kind of recomputation with a model that keeps its activations.
template <class Make, class Loss>
void check_model(Make make, Loss loss) {
  for (const Precision precision : {Precision::no, Precision::bf16}) {
    const std::vector<Tensor> plain = trained(make(), precision, loss);
    for (const Recomputation& kind : kKinds) {
      CAPTURE(static_cast<int>(kind.policy));
      CAPTURE(kind.every_n_layers);
      const auto model = make();
      CHECK_FALSE(set_recomputation(*model, kind).empty());
      check_same(plain, trained(model, precision, loss));
    }
  }
}

template <class Model>
auto loss_on(const TensorDict& batch) {
  return [batch](PreparedModel<Model>& model) { return model(batch).loss; };
}

}  // namespace

TEST_CASE("recomputation: BERT with dropout gives equal results, with and without padding") {
  using Model = BertForSequenceClassification;
  const auto make = [] {
    torch::manual_seed(7);
    auto model = std::make_shared<Model>(small_bert());
    model->initialize();
    return model;
  };
  for (const bool padded : {false, true}) check_model(make, loss_on<Model>(texts(padded)));
}

TEST_CASE("recomputation: BERT with eager attention and tied embeddings gives equal results") {
  using Model = BertForMaskedLM;
  const auto make = [] {
    torch::manual_seed(7);
    BertConfig config = small_bert();
    config.attn_implementation = AttentionImplementation::eager;
    auto model = std::make_shared<Model>(config);
    model->initialize();
    return model;
  };
  TensorDict batch = texts(true);
  batch["labels"] = batch.at("input_ids");
  check_model(make, loss_on<Model>(batch));
}

TEST_CASE(
    "recomputation: ViT and ResNet give equal results, and batch norms count each batch once") {
  torch::manual_seed(9);
  const TensorDict images = {{"pixel_values", torch::randn({4, 3, 16, 16})},
                             {"labels", at::randint(0, 2, {4})}};
  check_model(
      [] {
        torch::manual_seed(7);
        auto model =
            std::make_shared<ViTForImageClassification>(ViTConfig{.hidden_size = 16,
                                                                  .num_hidden_layers = 3,
                                                                  .num_attention_heads = 2,
                                                                  .intermediate_size = 32,
                                                                  .hidden_dropout_prob = 0.1,
                                                                  .image_size = {16, 16},
                                                                  .patch_size = {8, 8}});
        model->initialize();
        return model;
      },
      loss_on<ViTForImageClassification>(images));
  check_model(
      [] {
        torch::manual_seed(7);
        auto model = std::make_shared<ResNetForImageClassification>(
            ResNetConfig{.embedding_size = 8, .hidden_sizes = {8, 16}, .depths = {2, 1}});
        model->initialize();
        return model;
      },
      loss_on<ResNetForImageClassification>(images));
}

TEST_CASE("recomputation: GPT-2 and Llama give equal results") {
  TensorDict batch = texts(true);
  batch["labels"] = batch.at("input_ids");
  check_model(
      [] {
        torch::manual_seed(7);
        auto model = std::make_shared<GPT2LMHeadModel>(GPT2Config{
            .vocab_size = 60, .n_positions = 16, .n_embd = 16, .n_layer = 3, .n_head = 2});
        model->initialize();
        return model;
      },
      loss_on<GPT2LMHeadModel>(batch));
  check_model(
      [] {
        torch::manual_seed(7);
        auto model = std::make_shared<LlamaForCausalLM>(LlamaConfig{.vocab_size = 60,
                                                                    .hidden_size = 16,
                                                                    .intermediate_size = 32,
                                                                    .num_hidden_layers = 3,
                                                                    .num_attention_heads = 4,
                                                                    .num_key_value_heads = 2,
                                                                    .max_position_embeddings = 16});
        model->initialize();
        return model;
      },
      loss_on<LlamaForCausalLM>(batch));
}

TEST_CASE("recomputation: exported programs give equal results, by layers and by module paths") {
  const auto loss_of = [](const TensorDict& batch) {
    return [batch](PreparedModel<ExportedModule>& model) { return model(batch).at("loss"); };
  };
  TensorDict batch = texts(false);
  for (auto& [name, tensor] : batch) {
    if (name != "labels") tensor = tensor.narrow(1, 0, 6).remainder(10);
  }
  const std::vector<Tensor> plain =
      trained(load_exported(kPrograms / "transformer.pt2"), Precision::no, loss_of(batch));
  for (const RecomputePolicy policy : {RecomputePolicy::full, RecomputePolicy::selective}) {
    for (const std::vector<std::string>& modules :
         {std::vector<std::string>{"up", "down"}, {"*"}, {"q*", "norm?"}}) {
      CAPTURE(modules.front());
      const auto model = load_exported(kPrograms / "transformer.pt2");
      CHECK_FALSE(
          set_recomputation(*model, Recomputation{.policy = policy, .modules = modules}).empty());
      check_same(plain, trained(model, Precision::no, loss_of(batch)));
    }
  }
}

TEST_CASE("recomputation: layers are chosen by number and by path") {
  BertForSequenceClassification bert(small_bert());
  using Paths = std::vector<std::string>;
  CHECK(set_recomputation(bert, Recomputation{}) ==
        Paths{"bert.encoder.layer.0", "bert.encoder.layer.1", "bert.encoder.layer.2",
              "bert.encoder.layer.3"});
  CHECK(set_recomputation(bert, Recomputation{.every_n_layers = 3}) ==
        Paths{"bert.encoder.layer.0", "bert.encoder.layer.3"});
  CHECK(set_recomputation(bert, Recomputation{.modules = {"*.layer.[12]"}}) ==
        Paths{"bert.encoder.layer.1", "bert.encoder.layer.2"});
  CHECK(set_recomputation(bert, Recomputation{.every_n_layers = 4, .modules = {"bert.encoder"}}) ==
        Paths{"bert.encoder.layer.0"});
  CHECK(set_recomputation(bert, std::nullopt).empty());
}

TEST_CASE("recomputation: models and modules that cannot be recomputed are refused") {
  torch::nn::Linear plain(2, 2);
  CHECK(code_of([&] { set_recomputation(*plain, Recomputation{}); }) == "models.no-recomputation");
  BertForSequenceClassification bert(small_bert());
  CHECK(code_of([&] { set_recomputation(bert, Recomputation{.modules = {"encoder.*"}}); }) ==
        "models.recomputed-modules");
  CHECK(code_of([&] { set_recomputation(bert, Recomputation{.every_n_layers = 0}); }) ==
        "models.recomputed-modules");
  const auto program = load_exported(kPrograms / "transformer.pt2");
  CHECK(code_of([&] { set_recomputation(*program, Recomputation{.modules = {"layer9"}}); }) ==
        "models.recomputed-modules");
  const auto flat = load_exported(kPrograms / "tied.pt2");
  CHECK(code_of([&] { set_recomputation(*flat, Recomputation{}); }) == "models.no-recomputation");
}

TEST_CASE("recomputation: a refused choice leaves the layers as they were") {
  struct Block : torch::nn::Module, RecomputableLayer {
    Tensor forward(const Tensor& x) {
      return run_recomputable(
          [this](const Tensor& y) {
            ++runs;
            return y.sin();
          },
          x);
    }
    int runs = 0;
  };
  struct Net : torch::nn::Module {
    std::shared_ptr<Block> block = register_module("block", std::make_shared<Block>());
  };
  const auto runs_of = [](Net& net) {
    net.block->runs = 0;
    net.block->forward(at::ones({2}).requires_grad_()).sum().backward();
    return net.block->runs;
  };
  Net net;
  set_recomputation(net, Recomputation{});
  CHECK(runs_of(net) == 2);
  for (const Recomputation& refused :
       {Recomputation{.modules = {"layer9"}}, Recomputation{.every_n_layers = -1}}) {
    CHECK(code_of([&] { set_recomputation(net, refused); }) == "models.recomputed-modules");
    CHECK(runs_of(net) == 2);
  }
  set_recomputation(net, std::nullopt);
  CHECK(runs_of(net) == 1);
}

}  // namespace models_recomputation_test
