// Python loads each exported architecture that hasten has trained, and computes the same outputs.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cstdlib>

#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/exported/exported_module.h"
#include "hasten/formats/safetensors.h"
#include "oracle/architectures.h"
#include "oracle/exported_cases.h"
#include "skip.h"

namespace oracle_architecture_python_test {

using namespace hasten;
using namespace hasten::oracle;

namespace {

constexpr std::uint64_t kSeed = 7;

// Trains for two steps, and saves the program, the weights and the outputs of both modes.
void train_and_save(const std::string& name, const std::filesystem::path& folder) {
  const TensorDict data = load_safetensors(kArchitectures / (name + ".safetensors"));
  const auto model = load_exported(kArchitectures / (name + ".pt2"));
  torch::optim::SGD optimizer(model->parameters(), 0.05);
  for (std::int64_t step = 0; step < 2; ++step) {
    optimizer.zero_grad();
    const TensorDict outputs = model->forward(part(data, str("input.", step, '.')));
    loss_of(outputs, data.at(str("target.", step))).backward();
    optimizer.step();
  }
  model->save_files(folder);
  TensorDict results;
  const TensorDict inputs = part(data, "input.0.");
  for (const auto& [key, tensor] : inputs) results["input." + key] = tensor;
  const torch::NoGradGuard no_grad;
  model->eval();
  results["eval_logits"] = logits_of(model->forward(inputs)).contiguous();
  model->train();
  torch::manual_seed(kSeed);
  results["logits"] = logits_of(model->forward(inputs)).contiguous();
  save_safetensors(folder / "outputs.safetensors", results);
}

}  // namespace

TEST_CASE("exported: Python loads each trained architecture and computes the same") {
  const char* const python = std::getenv("HASTEN_REFERENCE_PYTHON");
  if (python == nullptr) return skip_test("HASTEN_REFERENCE_PYTHON names no Python with torch");
  const TemporaryDirectory scratch;
  for (const auto& [name, entry] : architectures().items()) {
    CAPTURE(name);
    train_and_save(name, scratch.path() / name);
  }
  const std::string command =
      str(python, " -W ignore " HASTEN_TEST_DATA "/oracle/check_architectures.py ",
          scratch.path().string());
  CHECK(std::system(command.c_str()) == 0);
  const std::filesystem::path results = scratch.path() / "results.json";
  REQUIRE(std::filesystem::exists(results));
  const auto found = nlohmann::json::parse(read_file(results));
  CHECK(found.size() == architectures().size());
  for (const auto& [name, difference] : found.items())
    record(name, "python_difference", difference);
}

}  // namespace oracle_architecture_python_test
