// A library with a custom operator, and an exported program that calls it.
#include "hasten/exported/operator_library.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cstdlib>

#include "hasten/base/files.h"
#include "hasten/exported/exported_module.h"
#include "hasten/exported/inspect.h"
#include "hasten/formats/safetensors.h"
#include "hasten/trainer/estimate.h"
#include "oracle/exported_cases.h"
#include "skip.h"
#include "unit/code_of.h"

namespace oracle_operator_library_test {

using namespace hasten;
using namespace hasten::oracle;

namespace {

const std::filesystem::path kData = HASTEN_TEST_DATA "/oracle/data/exported";

}  // namespace

// The order of the checks matters, because a library stays loaded until the process ends.
TEST_CASE("exported: an operator of a library is refused, loaded, and trained") {
  CHECK(code_of([] { load_exported(kData / "custom.pt2"); }) == "exported.operator");
  CHECK(code_of([] { load_operator_library("missing.so"); }) == "io.not-found");
  const TemporaryDirectory scratch;
  write_file_atomically(scratch.path() / "text.so", "no library");
  CHECK(code_of([&] { load_operator_library(scratch.path() / "text.so"); }) == "exported.library");
  CHECK(code_of([&] {
          load_exported(kData / "mlp.pt2", {.libraries = {scratch.path() / "text.so"}});
        }) == "exported.library");
  const char* const library = std::getenv("HASTEN_TEST_OPERATORS");
  if (library == nullptr) return skip_test("HASTEN_TEST_OPERATORS names no library of operators");
  CHECK(load_operator_library(library) == std::vector<std::string>{"hasten_test"});
  CHECK(load_operator_library(library) == std::vector<std::string>{"hasten_test"});
  // A file may not call a loaded operator unless the caller allows it.
  CHECK(code_of([] { load_exported(kData / "custom.pt2"); }) == "exported.operator");
  CHECK(inspect_exported(kData / "custom.pt2").refusal_code == "exported.operator");
  CHECK(inspect_exported(kData / "custom.pt2", {.libraries = {library}}).refusal == "");

  const TensorDict expected = load_safetensors(kData / "custom.safetensors");
  const auto model = load_exported(kData / "custom.pt2", {.libraries = {library}});
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  for (std::int64_t step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    const TensorDict outputs = model->forward(part(expected, str("input.", step, '.')));
    const at::Tensor loss = loss_of(outputs, expected.at(str("target.", step)));
    loss.backward();
    check_near(str("loss ", step), loss, expected.at("losses")[step]);
    optimizer.step();
  }
  for (const auto& [name, tensor] : part(expected, "final."))
    check_near(name, named_tensors(*model).at(name), tensor);

  EstimateOptions options{
      .model = (kData / "custom.pt2").string(), .length = 6, .libraries = {library}};
  options.arguments.per_device_train_batch_size = 4;
  options.arguments.max_grad_norm = 1e-3;
  const std::int64_t predicted = estimate(options).memory.peak;
  options.dry = false;
  CHECK(predicted == estimate(options).memory.peak);
}

}  // namespace oracle_operator_library_test
