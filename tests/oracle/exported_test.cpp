// Compares exported models with the results of eager PyTorch (tests/oracle/generate_exported.py),
// on tested::device().
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <set>

#include "device.h"
#include "hasten/accelerator.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/exported/exported_module.h"
#include "hasten/formats/safetensors.h"
#include "hasten/formats/weights.h"
#include "oracle/exported_cases.h"
#include "skip.h"

namespace oracle_exported_test {

using namespace hasten;
using namespace hasten::oracle;

namespace {

const std::filesystem::path kData = tested::folder() / "oracle/data/exported";
constexpr std::int64_t kSteps = 5;
constexpr std::uint64_t kSeed = 7;

// The models with a dynamic batch size. `frozen` has a fixed batch size.
const std::vector<std::string> kDynamic = {"mlp",          "cnn",  "lstm",       "gru",
                                           "transformer",  "tied", "branches",   "drop_path",
                                           "two_programs", "scan", "while_loop", "map"};
const std::vector<std::string> kAll = [] {
  std::vector<std::string> all = kDynamic;
  all.push_back("frozen");
  return all;
}();

// Returns the model on tested::device().
std::shared_ptr<ExportedModule> load(const std::filesystem::path& file) {
  auto model = load_exported(file);
  model->to(tested::device());
  return model;
}

// Returns the inputs whose names begin with the prefix, on tested::device().
TensorDict inputs_of(const TensorDict& recorded, const std::string& prefix) {
  TensorDict inputs = part(recorded, prefix);
  for (auto& [name, tensor] : inputs) tensor = tensor.to(tested::device());
  return inputs;
}

at::Tensor target_of(const TensorDict& recorded, std::int64_t step) {
  return recorded.at(str("target.", step)).to(tested::device());
}

// Models that draw random numbers in training: three with dropout, and one that drops whole layers.
const std::set<std::string> kRandom = {"mlp", "lstm", "two_programs", "drop_path"};

// True if the model draws random numbers in training, and the device draws others than the CPU, on
// which they were recorded.
bool needs_random_numbers_of_cpu(const std::string& name) {
  return kRandom.count(name) != 0 &&
         tested::needs_cpu("training of " + name, "which draws random numbers");
}

// Trains as the generator does. Compares the first outputs and gradients, and all losses.
void train_and_check(ExportedModule& model, const TensorDict& expected) {
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  torch::manual_seed(kSeed);
  for (std::int64_t step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const TensorDict outputs = model.forward(inputs_of(expected, str("input.", step, '.')));
    const at::Tensor loss = loss_of(outputs, target_of(expected, step));
    loss.backward();
    check_near(str("loss ", step), loss, expected.at("losses")[step]);
    if (step == 0) {
      check_near("logits", logits_of(outputs), expected.at("logits"));
      const TensorDict gradients = part(expected, "grad.");
      std::size_t compared = 0;
      for (const auto& item : model.named_parameters()) {
        if (!item.value().grad().defined()) continue;
        check_near("gradient of " + item.key(), item.value().grad(), gradients.at(item.key()));
        ++compared;
      }
      CHECK(compared == gradients.size());
    }
    optimizer.step();
  }
}

at::Tensor eval_logits(ExportedModule& model, const TensorDict& expected) {
  const torch::NoGradGuard no_grad;
  model.eval();
  return logits_of(model.forward(inputs_of(expected, "input.0.")));
}

// Compares the outputs of an untrained model on tested::device() with those on the CPU.
void check_evaluation_against_cpu(const std::filesystem::path& file, const TensorDict& expected) {
  const auto reference = load_exported(file);
  reference->eval();
  const torch::NoGradGuard no_grad;
  const at::Tensor on_cpu = logits_of(reference->forward(part(expected, "input.0.")));
  check_near("eval logits", eval_logits(*load(file), expected), on_cpu);
}

// Trains and evaluates a model, and compares all numbers with those of eager PyTorch.
void check_against_eager(const std::filesystem::path& folder, const std::string& name) {
  const TensorDict expected = load_safetensors(folder / (name + ".safetensors"));
  if (needs_random_numbers_of_cpu(name)) {
    // drop_path has no program for evaluation.
    if (name != "drop_path") check_evaluation_against_cpu(folder / (name + ".pt2"), expected);
    return;
  }
  const auto model = load(folder / (name + ".pt2"));
  train_and_check(*model, expected);
  const TensorDict final = part(expected, "final."), trained = named_tensors(*model);
  CHECK(trained.size() == final.size());
  for (const auto& [key, tensor] : final) check_near(key, trained.at(key), tensor);
  if (name == "drop_path") return;  // it draws random numbers only in training
  check_near("eval logits", eval_logits(*model, expected), expected.at("eval_logits"));
  for (const auto& [key, tensor] : final)
    CHECK(at::equal(named_tensors(*model).at(key), trained.at(key)));
}

}  // namespace

TEST_CASE("exported: training and evaluation equal those of eager PyTorch") {
  for (const std::string& name : kAll) {
    CAPTURE(name);
    check_against_eager(kData, name);
  }
}

TEST_CASE("exported: files that PyTorch 2.15 wrote train like its eager mode") {
  for (const std::string name : {"mlp", "cnn", "lstm", "transformer", "branches", "two_programs"}) {
    CAPTURE(name);
    check_against_eager(kData / "torch-2.15", name);
  }
}

TEST_CASE("exported: a batch of another size gives the outputs of eager PyTorch") {
  for (const std::string& name : kDynamic) {
    CAPTURE(name);
    if (needs_random_numbers_of_cpu(name)) continue;
    const TensorDict expected = load_safetensors(kData / (name + ".safetensors"));
    const auto model = load(kData / (name + ".pt2"));
    torch::manual_seed(kSeed);
    check_near("logits", logits_of(model->forward(inputs_of(expected, "other."))),
               expected.at("other_logits"));
  }
}

TEST_CASE("exported: a saved module continues like the one that was saved") {
  for (const std::string& name : kAll) {
    CAPTURE(name);
    if (needs_random_numbers_of_cpu(name)) continue;
    const TemporaryDirectory scratch;
    const TensorDict expected = load_safetensors(kData / (name + ".safetensors"));
    const auto model = load(kData / (name + ".pt2"));
    train_and_check(*model, expected);
    model->save(scratch.path() / "trained.pt2");
    const auto again = load(scratch.path() / "trained.pt2");
    const TensorDict before = named_tensors(*model), after = named_tensors(*again);
    REQUIRE(before.size() == after.size());
    for (const auto& [key, tensor] : before) CHECK(at::equal(tensor, after.at(key)));
    model->save_weights(scratch.path());
    const TensorDict weights = load_weights(scratch.path()), state = again->state_dict();
    for (const auto& [key, tensor] : weights) CHECK(at::equal(tensor, state.at(key).cpu()));
    CHECK(weights.size() == (name == "tied" ? state.size() - 1 : state.size()));
  }
}

TEST_CASE("exported: Python loads a saved module and computes the same") {
  const char* const python = std::getenv("HASTEN_REFERENCE_PYTHON");
  if (python == nullptr) return skip_test("HASTEN_REFERENCE_PYTHON names no Python with torch");
  for (const std::string name : {"cnn", "tied", "transformer"}) {
    CAPTURE(name);
    const TemporaryDirectory scratch;
    const TensorDict expected = load_safetensors(kData / (name + ".safetensors"));
    const auto model = load(kData / (name + ".pt2"));
    train_and_check(*model, expected);
    model->save(scratch.path() / "trained.pt2");
    model->save_weights(scratch.path());
    TensorDict outputs;
    for (const auto& [key, tensor] : part(expected, "input.0.")) outputs["input." + key] = tensor;
    outputs["logits"] = logits_of(model->forward(inputs_of(expected, "input.0."))).detach().cpu();
    save_safetensors(scratch.path() / "outputs.safetensors", outputs);
    const std::string command =
        str(python, " -W ignore " HASTEN_TEST_DATA "/oracle/check_exported.py ",
            (scratch.path() / "trained.pt2").string(), " ",
            (scratch.path() / "model.safetensors").string(), " ",
            (scratch.path() / "outputs.safetensors").string());
    CHECK(std::system(command.c_str()) == 0);
  }
}

TEST_CASE("exported: an accumulated window trains like one batch") {
  const TensorDict expected = load_safetensors(kData / "transformer.safetensors");
  const auto train = [&](std::int64_t parts) {
    Accelerator accelerator(
        {.gradient_accumulation_steps = parts, .cpu = tested::device().is_cpu()});
    const auto net = load_exported(kData / "transformer.pt2");
    torch::optim::SGD sgd(net->parameters(), 0.05);
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    for (std::int64_t step = 0; step < kSteps; ++step) {
      for (std::int64_t i = 0; i < parts; ++i) {
        const auto guard = accelerator.accumulate(model);
        optimizer.zero_grad();
        TensorDict batch = inputs_of(expected, str("input.", step, '.'));
        for (auto& [name, tensor] : batch)
          tensor = tensor.chunk(parts)[static_cast<std::size_t>(i)];
        accelerator.backward(model(batch).at("loss"));
        optimizer.step();
      }
    }
    return named_tensors(*net);
  };
  const TensorDict whole = train(1), accumulated = train(2);
  for (const auto& [name, tensor] : whole)
    check_near(name, accumulated.at(name), tensor.detach().cpu());
}

TEST_CASE("exported: mixed precision trains to losses near those of float") {
  for (const std::string name : {"mlp", "cnn", "lstm", "gru", "transformer", "tied", "branches"}) {
    CAPTURE(name);
    const TensorDict expected = load_safetensors(kData / (name + ".safetensors"));
    Accelerator accelerator({.mixed_precision = Precision::bf16, .cpu = tested::device().is_cpu()});
    const auto net = load_exported(kData / (name + ".pt2"));
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    torch::manual_seed(kSeed);
    for (std::int64_t step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      TensorDict outputs = model(inputs_of(expected, str("input.", step, '.')));
      for (auto& [key, tensor] : outputs) tensor = tensor.to(at::kFloat);
      const at::Tensor loss = loss_of(outputs, target_of(expected, step));
      accelerator.backward(loss);
      optimizer.step();
      CHECK(loss.item<double>() ==
            doctest::Approx(expected.at("losses")[step].item<double>()).epsilon(0.05));
    }
  }
}

}  // namespace oracle_exported_test
