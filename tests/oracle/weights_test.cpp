// Exchanges weights with Python's modules (generate_weights.py).
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <string>

#include "hasten/base/files.h"
#include "hasten/formats/module_weights.h"
#include "hasten/formats/safetensors.h"
#include "skip.h"
#include "unit/code_of.h"

namespace oracle_weights_test {

using namespace hasten;
namespace fs = std::filesystem;
namespace nn = torch::nn;

namespace {

const fs::path kOracle = fs::path(HASTEN_TEST_DATA) / "oracle";
const fs::path kWeights = kOracle / "data/weights";

// A decoder that uses the embedding table as its output matrix.
struct DecoderImpl : nn::Module {
  explicit DecoderImpl(const at::Tensor& table) { weight = register_parameter("weight", table); }
  at::Tensor weight;
};
TORCH_MODULE(Decoder);

struct Text : nn::Module {
  at::Tensor forward(const at::Tensor& ids) {
    at::Tensor x = embedding(ids) + positions.slice(0, 0, ids.size(1));
    x = std::get<0>(lstm(x));
    for (const auto& block : *blocks) x = at::tanh(block->as<nn::Linear>()->forward(x));
    return at::linear(norm(x) * gain + offset, decoder->weight);
  }

  nn::Embedding embedding = register_module("embedding", nn::Embedding(11, 6));
  nn::LSTM lstm =
      register_module("lstm", nn::LSTM(nn::LSTMOptions(6, 6).num_layers(2).batch_first(true)));
  nn::ModuleList blocks =
      register_module("blocks", nn::ModuleList(nn::Linear(6, 6), nn::Linear(6, 6)));
  nn::LayerNorm norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({6})));
  at::Tensor gain = register_parameter("gain", at::ones({}));
  at::Tensor offset = register_buffer("offset", at::zeros({6}));
  at::Tensor positions = register_buffer("positions", at::full({7, 6}, 0.25));
  Decoder decoder = register_module("decoder", Decoder(embedding->weight));
};

struct Vision : nn::Module {
  at::Tensor forward(const at::Tensor& x) { return head->forward(at::relu(norm(conv(x)))); }

  nn::Conv2d conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(3, 4, 3).padding(1)));
  nn::BatchNorm2d norm = register_module("norm", nn::BatchNorm2d(4));
  nn::Sequential head =
      register_module("head", nn::Sequential(nn::Flatten(), nn::Linear(64, 5), nn::ReLU(),
                                             nn::Linear(nn::LinearOptions(5, 2).bias(false))));
};

template <class Net>
void check_output(Net& net, const std::string& name, double tolerance = 1e-5) {
  const TensorDict expected = load_safetensors(kWeights / "expected.safetensors");
  net.eval();
  const torch::NoGradGuard no_grad;
  const at::Tensor output = net.forward(expected.at(name + ".input"));
  CHECK((output - expected.at(name + ".output")).abs().max().item<double>() < tolerance);
}

}  // namespace

TEST_CASE("weights: a module loads Python's state_dict and computes the same") {
  Vision vision;
  CHECK(load_weights(vision, kWeights / "vision.safetensors").missing.empty());
  CHECK(vision.norm->num_batches_tracked.item<std::int64_t>() == 3);
  check_output(vision, "vision");

  Vision half;
  const fs::path file = kWeights / "vision_half.safetensors";
  CHECK(code_of([&] { load_weights(half, file); }) == "weights.mismatch");
  load_weights(half, file, {.convert_dtype = true});
  check_output(half, "vision", 1e-2);
}

TEST_CASE("weights: tied weights and buffers that are not persistent load from Python's files") {
  Text text;
  load_weights(text, kWeights / "text.safetensors", {.non_persistent = {"positions"}});
  CHECK(text.decoder->weight.is_same(text.embedding->weight));
  check_output(text, "text");

  Text untied;  // its file has both names, with a prefix
  load_weights(untied, kWeights / "text_untied.safetensors",
               {.rename = {replace_prefix("module.", "")}, .non_persistent = {"positions"}});
  check_output(untied, "text");
}

TEST_CASE("weights: Python loads what a module saves and computes the same") {
  const char* const python = std::getenv("HASTEN_REFERENCE_PYTHON");
  if (python == nullptr || *python == '\0')
    return skip_test("HASTEN_REFERENCE_PYTHON does not name a Python with torch and safetensors");
  const TemporaryDirectory folder;
  torch::manual_seed(11);
  Text text;
  Vision vision;
  const at::Tensor ids = at::randint(11, {2, 7}, at::kLong), image = at::randn({3, 3, 4, 4});
  for (int i = 0; i < 3; ++i) vision.forward(at::randn({8, 3, 4, 4}) + 0.5);  // running statistics
  text.eval();
  vision.eval();
  save_weights(text, folder.path() / "text.safetensors", {.non_persistent = {"positions"}});
  save_weights(vision, folder.path() / "vision.safetensors");
  save_safetensors(folder.path() / "expected.safetensors",
                   {{"text.input", ids},
                    {"text.output", text.forward(ids)},
                    {"vision.input", image},
                    {"vision.output", vision.forward(image)}});
  const std::string command = std::string(python) + " '" +
                              (kOracle / "generate_weights.py").string() + "' --read '" +
                              folder.path().string() + "'";
  CHECK(std::system(command.c_str()) == 0);
}

}  // namespace oracle_weights_test
