#include "hasten/formats/module_weights.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/formats/safetensors.h"
#include "unit/code_of.h"

namespace formats_module_weights_test {

using namespace hasten;
namespace nn = torch::nn;
using Names = std::vector<std::string>;

namespace {

struct Net : nn::Module {
  at::Tensor forward(const at::Tensor& x) { return norm(first(x)); }
  nn::Linear first = register_module("first", nn::Linear(2, 3));
  nn::BatchNorm1d norm = register_module("norm", nn::BatchNorm1d(3));
  at::Tensor inv_freq = register_buffer("inv_freq", at::arange(4.0));
};

// One parameter has two names, and one module has two names.
struct Tied : nn::Module {
  at::Tensor table = register_parameter("table", at::rand({4, 2}));
  at::Tensor again = register_parameter("again", table);
  nn::Linear layer = register_module("layer", nn::Linear(2, 2));
  nn::Linear same = register_module("same", layer);
};

TensorDict values_of(const nn::Module& module) {
  TensorDict out;
  for (const auto& item : module.named_parameters())
    out[item.key()] = item.value().detach().clone();
  for (const auto& item : module.named_buffers()) out[item.key()] = item.value().clone();
  return out;
}

bool are_equal(const TensorDict& a, const TensorDict& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, tensor] : a)
    if (!b.contains(name) || !at::equal(tensor, b.at(name))) return false;
  return true;
}

// Returns the message of the error that loading the tensors throws, or an empty string. Checks that
// the module has the same values as before.
std::string error_message(nn::Module& module, const TensorDict& tensors,
                          const LoadModuleOptions& options = {}) {
  const TemporaryDirectory folder;
  save_safetensors(folder.path() / "a.safetensors", tensors);
  const TensorDict before = values_of(module);
  std::string message;
  try {
    load_weights(module, folder.path() / "a.safetensors", options);
  } catch (const Error& error) {
    CHECK(error.code() == "weights.mismatch");
    message = error.what();
    message.erase(0, folder.path().string().size() + 1);
  }
  CHECK(are_equal(values_of(module), before));
  return message;
}

}  // namespace

TEST_CASE("module weights: a file and shards in a folder restore parameters and buffers") {
  const TemporaryDirectory folder;
  Net net;
  net.forward(at::rand({8, 2}));
  const TensorDict values = values_of(net);
  save_weights(net, folder.path() / "net.safetensors");
  save_weights(net, folder.path() / "new/shards", {.max_shard_size = 40});
  CHECK(std::filesystem::exists(folder.path() / "new/shards/model.safetensors.index.json"));
  for (const char* where : {"net.safetensors", "new/shards"}) {
    Net other;
    const at::Tensor weight = other.first->weight;
    const IncompatibleNames names = load_weights(other, folder.path() / where);
    CHECK(names.missing.empty());
    CHECK(names.unexpected.empty());
    CHECK(are_equal(values_of(other), values));
    CHECK(other.first->weight.is_same(weight));
    CHECK(weight.requires_grad());
  }
}

TEST_CASE("module weights: one error lists everything, and nothing changes") {
  Net net;
  TensorDict wrong = values_of(net);
  wrong.erase("first.bias");
  wrong.erase("norm.bias");
  wrong["more"] = at::zeros({1});
  wrong["first.weight"] = at::zeros({3, 3});
  wrong["norm.weight"] = at::zeros({3}, at::kHalf);
  CHECK(error_message(net, wrong) ==
        "a.safetensors does not fit the module: got missing in the file: first.bias, norm.bias; "
        "unexpected in the file: more; of another shape: first.weight ([3, 3] in the file, [3, 2] "
        "in the module); of another type: norm.weight (Half in the file, Float in the module). "
        "Hint: rename maps the file's names to the module's; strict = false accepts missing and "
        "unexpected names");
  // Shapes and types must match even without strict.
  CHECK(error_message(net, wrong, {.strict = false}) ==
        "a.safetensors does not fit the module: got of another shape: first.weight ([3, 3] in the "
        "file, [3, 2] in the module); of another type: norm.weight (Half in the file, Float in the "
        "module). Hint: check that the file belongs to a module with the same configuration");
}

TEST_CASE("module weights: without strict, other names are reported") {
  Net net;
  TensorDict some = {{"first.weight", at::full({3, 2}, 7.0f)}, {"more", at::zeros({1})}};
  const TemporaryDirectory folder;
  save_safetensors(folder.path() / "a.safetensors", some);
  const IncompatibleNames names =
      load_weights(net, folder.path() / "a.safetensors", {.strict = false});
  CHECK(names.unexpected == Names{"more"});
  CHECK(names.missing == Names{"first.bias", "inv_freq", "norm.bias", "norm.num_batches_tracked",
                               "norm.running_mean", "norm.running_var", "norm.weight"});
  CHECK(net.first->weight.eq(7).all().item<bool>());
  // A file with none of the module's names is refused.
  CHECK(error_message(net, {{"more", at::zeros({1})}}, {.strict = false}) != "");
}

TEST_CASE("module weights: types are converted on request") {
  Net net;
  TensorDict half = values_of(net);
  for (auto& [name, tensor] : half)
    if (tensor.is_floating_point()) tensor = tensor.to(at::kHalf);
  CHECK(error_message(net, half).ends_with("Hint: convert_dtype = true converts them"));
  const TemporaryDirectory folder;
  save_safetensors(folder.path() / "a.safetensors", half);
  load_weights(net, folder.path() / "a.safetensors", {.convert_dtype = true});
  CHECK(at::equal(net.first->weight, half.at("first.weight").to(at::kFloat)));
  half["norm.num_batches_tracked"] = at::zeros({}, at::kFloat);  // a fraction would be lost
  CHECK(error_message(net, half, {.convert_dtype = true}) ==
        "a.safetensors does not fit the module: got of another type: norm.num_batches_tracked "
        "(Float in the file, Long in the module). Hint: convert_dtype = true converts them");
}

TEST_CASE("module weights: names are renamed") {
  Net net;
  TensorDict wrapped;
  for (const auto& [name, tensor] : values_of(net)) wrapped["module." + name] = tensor;
  CHECK(error_message(net, wrapped)
            .ends_with("Hint: set rename = {replace_prefix(\"module.\", \"\")}"));
  CHECK(error_message(net, wrapped, {.rename = {replace_prefix("module.", "")}}) == "");
  CHECK(error_message(net, wrapped, {.rename = {replace_regex("^\\w+\\.(.*)", "$1")}}) == "");
  const Rename without_first_part = [](const std::string& name) { return name.substr(7); };
  CHECK(error_message(net, wrapped, {.rename = {without_first_part}}) == "");
  CHECK(code_of([] { replace_regex("(", ""); }) == "weights.regex");

  TensorDict two = values_of(net);
  two["old"] = two.at("first.bias");
  two["first.bias"] = two.at("first.bias").clone();
  CHECK(error_message(net, two, {.rename = {replace_prefix("old", "first.bias")}}) ==
        "a.safetensors does not fit the module: got first.bias and old both become first.bias. "
        "Hint: check that the file belongs to a module with the same configuration");
  // An empty name leaves a tensor out.
  CHECK(error_message(net, two, {.rename = {replace_prefix("old", "")}}) == "");

  // Here the module contains the module of the file.
  nn::Sequential outer({{"net", nn::AnyModule(nn::Linear(2, 3))}});
  const TensorDict inner = {{"weight", at::zeros({3, 2})}, {"bias", at::zeros({3})}};
  CHECK(error_message(*outer, inner)
            .ends_with("Hint: set rename = {replace_prefix(\"\", \"net.\")}"));
  CHECK(error_message(*outer, {}) != "");
}

TEST_CASE("module weights: tied tensors are saved once and stay tied") {
  const TemporaryDirectory folder;
  const auto file = folder.path() / "a.safetensors";
  Tied tied;
  save_weights(tied, file);
  const SafetensorsFile saved(file);
  CHECK(saved.names() == Names{"layer.bias", "layer.weight", "table"});
  CHECK(saved.metadata().at("again") == "table");
  CHECK(saved.metadata().at("same.weight") == "layer.weight");
  CHECK(saved.metadata().at("format") == "pt");
  Tied other;
  load_weights(other, file);
  CHECK(at::equal(other.again, tied.table));
  CHECK(other.again.is_same(other.table));

  TensorDict both = values_of(tied);  // every name, each with its own memory
  CHECK(error_message(other, both) == "");
  both["again"] = both.at("again") + 1;
  CHECK(error_message(other, both)
            .starts_with("a.safetensors does not fit the module: got again and table differ in the "
                         "file, but are one "
                         "tensor in the module."));
  both.erase("table");
  save_safetensors(folder.path() / "b.safetensors", both);
  load_weights(other, folder.path() / "b.safetensors");
  CHECK(at::equal(other.table, tied.table + 1));
}

TEST_CASE("module weights: buffers that are not persistent are neither saved nor loaded") {
  const TemporaryDirectory folder;
  const auto file = folder.path() / "a.safetensors";
  nn::Sequential outer(std::make_shared<Net>());
  save_weights(*outer, file, {.non_persistent = {"inv_freq"}});
  CHECK_FALSE(SafetensorsFile(file).contains("0.inv_freq"));
  CHECK(code_of([&] { load_weights(*outer, file); }) == "weights.mismatch");
  load_weights(*outer, file, {.non_persistent = {"inv_freq"}});
  save_weights(*outer, file);
  // The file's values of the buffer are ignored.
  load_weights(*outer, file, {.non_persistent = {"0.inv_freq"}});
  for (const char* wrong : {"freq", "weight", "0"})
    CHECK(code_of([&] { save_weights(*outer, file, {.non_persistent = {wrong}}); }) ==
          "weights.no-buffer");
}

TEST_CASE("module weights: tensors that cannot be written are refused") {
  struct OnMeta : nn::Module {
    OnMeta() { register_parameter("weight", at::zeros({3, 2}, at::kMeta)); }
  } on_meta;
  const TemporaryDirectory folder;
  save_safetensors(folder.path() / "a.safetensors", {{"weight", at::zeros({3, 2})}});
  CHECK(code_of([&] { load_weights(on_meta, folder.path() / "a.safetensors"); }) ==
        "weights.mismatch");
  struct Expanded : nn::Module {
    Expanded() { register_buffer("rows", at::zeros({1, 2}).expand({3, 2})); }
  } expanded;
  CHECK(error_message(expanded, {{"rows", at::ones({3, 2})}}) ==
        "a.safetensors does not fit the module: got rows has several elements in one place of "
        "memory. Hint: check that the file belongs to a module with the same configuration");
}

}  // namespace formats_module_weights_test
