// save_state and load_state inside an accumulation window.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/manifest.h"
#include "hasten/data/loader.h"
#include "hasten/formats/safetensors.h"
#include "hasten/optim/adamw.h"
#include "hasten/optim/metric_scheduler.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/code_of.h"
#include "unit/prepare/save_state_loop.h"

namespace prepare_saved_windows_test {

using namespace hasten;
namespace fs = std::filesystem;
namespace optim = torch::optim;
using namespace hasten::save_state_loop;

TEST_CASE("save_state: a run that stops after any micro-batch of a window continues bit for bit") {
  // An epoch has 11 micro-batches: three windows of 3, and one of 2.
  const Steps all = {1, 2, 3, 4, 8, 10, 11, 12, 13, 21, 22, 23, 25};
  CHECK(differing_stops({.accumulation = 3, .workers = 2, .stops_at_micro_batch = true}, all) ==
        Steps{});
  CHECK(differing_stops({.foreign_loader = true, .accumulation = 4, .stops_at_micro_batch = true},
                        {1, 6, 11, 14}) == Steps{});
}

TEST_CASE("save_state: a window keeps the gradients of each kind of parameter") {
  const TemporaryDirectory folder;
  const auto make = [](torch::nn::Embedding& table, torch::nn::Linear& head) {
    torch::manual_seed(1);
    table = torch::nn::Embedding(torch::nn::EmbeddingOptions(9, 3).sparse(true));
    head = torch::nn::Linear(3, 1);
  };
  const auto pass = [](Accelerator& accelerator, auto& table, auto& head, std::int64_t word) {
    const auto guard = accelerator.accumulate(table, head);
    accelerator.backward(head(table(at::tensor({word, word + 1}))).sum());
  };
  torch::nn::Embedding table{nullptr}, other_table{nullptr};
  torch::nn::Linear head{nullptr}, other_head{nullptr};
  make(table, head);
  Accelerator first({.gradient_accumulation_steps = 3, .cpu = true});
  auto [a, b] = first.prepare(table, head);
  pass(first, a, b, 1);
  pass(first, a, b, 2);
  first.save_state(folder.path() / "state");
  pass(first, a, b, 3);
  make(other_table, other_head);
  other_head->weight.mutable_grad() = at::ones_like(other_head->weight);  // load_state replaces it
  Accelerator second({.gradient_accumulation_steps = 3, .cpu = true});
  auto [c, d] = second.prepare(other_table, other_head);
  second.load_state(folder.path() / "state");
  CHECK(other_table->weight.grad().is_sparse());
  CHECK_FALSE(other_table->weight.grad().is_coalesced());
  pass(second, c, d, 3);
  CHECK(second.sync_gradients());
  CHECK(at::equal(head->weight.grad(), other_head->weight.grad()));
  CHECK(at::equal(head->bias.grad(), other_head->bias.grad()));
  CHECK(at::equal(table->weight.grad().to_dense(), other_table->weight.grad().to_dense()));
}

namespace {

struct TablesImpl : torch::nn::Module {
  TablesImpl() {
    torch::manual_seed(1);
    word = register_module("word", table(3));
    place = register_module("place", table(3));
    bias = register_module("bias", table(1));
    first = register_parameter("first", torch::rand({9}));
    second = register_parameter("second", torch::rand({9}));
  }
  static torch::nn::Embedding table(std::int64_t width) {
    return torch::nn::Embedding(torch::nn::EmbeddingOptions(9, width).sparse(true));
  }
  // The sum gives `word` and `place` the same values, `word` and `bias` read the same ids, and
  // `first` and `second` are added as views.
  at::Tensor forward(const at::Tensor& ids) {
    const at::Tensor rows = word(ids) + place(at::arange(ids.size(0))),
                     dense = first.view({3, 3}) + second.view({3, 3});
    return (rows.matmul(dense).tanh() * bias(ids)).sum();
  }
  torch::nn::Embedding word{nullptr}, place{nullptr}, bias{nullptr};
  at::Tensor first, second;
};
TORCH_MODULE(Tables);

}  // namespace

TEST_CASE("save_state: a window keeps gradients that share memory") {
  const TemporaryDirectory folder;
  const auto pass = [](Accelerator& accelerator, auto& model) {
    const auto guard = accelerator.accumulate(model);
    accelerator.backward(model(torch::tensor({1, 4, 5}, at::kLong)));
  };
  Tables tables, others;
  Accelerator first({.gradient_accumulation_steps = 2, .cpu = true});
  auto [model] = first.prepare(tables);
  pass(first, model);
  first.save_state(folder.path() / "state");
  Accelerator second({.gradient_accumulation_steps = 2, .cpu = true});
  auto [other] = second.prepare(others);
  second.load_state(folder.path() / "state");
  for (const auto& item : tables->named_parameters()) {
    CAPTURE(item.key());
    const at::Tensor loaded = others->named_parameters()[item.key()].grad();
    CHECK(at::equal(item.value().grad().to_dense(), loaded.to_dense()));
  }
  pass(second, other);
  CHECK(second.sync_gradients());
}

namespace {

// The elements of `large` share one number in memory.
struct LargeNetImpl : torch::nn::Module {
  explicit LargeNetImpl(std::int64_t elements) {
    small = register_parameter("small", at::ones({1}));
    large = register_parameter("large", at::zeros({1}).expand({elements}));
  }
  at::Tensor forward(const at::Tensor& x) { return small * x; }
  at::Tensor small, large;
};
TORCH_MODULE(LargeNet);

}  // namespace

TEST_CASE("save_state: the space for weights and gradients is checked before either is written") {
  const TemporaryDirectory folder;
  // The disk has space for the weights, but not for their gradients as well.
  const std::uintmax_t elements = fs::space(folder.path()).available / 10 * 6 / sizeof(float);
  LargeNet net(static_cast<std::int64_t>(elements));
  Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
  auto [model] = accelerator.prepare(net);
  {
    const auto guard = accelerator.accumulate(model);
    accelerator.backward(model(at::ones({1})).sum());
  }
  // It has no memory, so writing it would throw another error.
  net->large.mutable_grad() = at::empty(net->large.sizes(), at::kMeta);
  for (const bool asynchronous : {false, true}) {
    CAPTURE(asynchronous);
    CHECK(code_of([&] {
            accelerator.save_state(folder.path() / "state", {.asynchronous = asynchronous});
          }) == "io.no-space");
    CHECK(fs::is_empty(folder.path()));
  }
}

TEST_CASE("save_state: a call between the last micro-batch's begin and its step is refused") {
  const TemporaryDirectory folder;
  Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
  Net net;
  AdamW adamw(net->parameters());
  auto [model, optimizer] = accelerator.prepare(net, adamw);
  {
    const auto guard = accelerator.accumulate(model);
    accelerator.backward(model(at::ones({4, kWidth})).mean());
  }
  const auto guard = accelerator.accumulate(model);  // without a backward pass
  CHECK(code_of([&] { accelerator.save_state(folder.path() / "state"); }) ==
        "checkpoint.open-window");
  CHECK_FALSE(fs::exists(folder.path() / "state"));
  optimizer.step();
  accelerator.save_state(folder.path() / "state");
  CHECK_FALSE(fs::exists(folder.path() / "state" / "gradients_0.safetensors"));
}

TEST_CASE("load_state: gradients that do not fit are refused before anything changes") {
  const TemporaryDirectory folder;
  const fs::path state = folder.path() / "state";
  Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
  Net net;
  auto [model] = accelerator.prepare(net);
  {
    const auto guard = accelerator.accumulate(model);
    accelerator.backward(model(at::ones({4, kWidth})).mean());
  }
  accelerator.save_state(state);
  const auto code_with = [&](const TensorDict& gradients) {
    save_safetensors(state / "gradients_0.safetensors", gradients);
    write_manifest(state);
    return code_of([&] { accelerator.load_state(state); });
  };
  const at::Tensor before = net->second->weight.grad().clone();
  CHECK(code_with({{"second.weight", at::ones({2, 2})}}) == "checkpoint.gradients");
  CHECK(code_with({{"third.weight", at::ones({2, 2})}}) == "checkpoint.gradients");
  CHECK(code_with({{"second.weight:indices", at::full({2, 1}, 99, at::kLong)},
                   {"second.weight:values", at::ones({1})},
                   {"second.weight:is_coalesced", at::scalar_tensor(true, at::kBool)}}) ==
        "checkpoint.gradients");
  CHECK(at::equal(before, net->second->weight.grad()));
}

TEST_CASE("load_state: numbers of a window that do not fit are refused") {
  const TemporaryDirectory folder;
  const fs::path file = folder.path() / "state" / "accelerator_state.json";
  Accelerator accelerator({.gradient_accumulation_steps = 2, .cpu = true});
  Net net;
  auto [model] = accelerator.prepare(net);
  {
    const auto guard = accelerator.accumulate(model);
    accelerator.backward(model(at::ones({4, kWidth})).mean());
  }
  accelerator.save_state(file.parent_path());
  const std::string text = read_file(file);
  const auto code_with = [&](const std::string& key, const std::string& value) {
    nlohmann::json json = nlohmann::json::parse(text);
    nlohmann::json& window = json.at("windows").at(0).at(0);
    if (key == "micro_batches") window.erase("capacity");
    window.at(key) = nlohmann::json::parse(value);
    write_file_atomically(file, json.dump(2) + "\n");
    write_manifest(file.parent_path());
    return code_of([&] { accelerator.load_state(file.parent_path()); });
  };
  CHECK(code_with("weight", "1.0") == "none");
  CHECK(code_with("models", "[1e300]") == "checkpoint.state");
  CHECK(code_with("models", "[18446744073709551615]") == "checkpoint.state");
  CHECK(code_with("models", "[0.5]") == "checkpoint.state");
  CHECK(code_with("micro_batches", "1e300") == "checkpoint.state");
  CHECK(code_with("micro_batches", "9223372036854775807") == "checkpoint.window");
  CHECK(code_with("weight", "\"1\"") == "checkpoint.state");
}

TEST_CASE("load_state: a window of two processes is not the window of one") {
  const TemporaryDirectory project;
  const Loop loop{.batch_size = 2, .stops_at_micro_batch = true};
  debug_launcher([&] { train(loop, project.path(), 5); });
  CHECK(code_of([&] { train(loop, project.path()); }) == "checkpoint.window");
}

}  // namespace prepare_saved_windows_test
