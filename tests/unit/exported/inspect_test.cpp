#include "hasten/exported/inspect.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include "hasten/anatomy/anatomy.h"
#include "hasten/base/files.h"
#include "unit/code_of.h"
#include "unit/exported/edited_archive.h"

namespace exported_inspect_test {

using namespace hasten;
using Json = nlohmann::json;

namespace {

const std::filesystem::path kModels = HASTEN_TEST_DATA "/oracle/data/exported";

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("inspect: a program's inputs, outputs, tensors and operators are listed") {
  const ExportedContents contents = inspect_exported(kModels / "tied.pt2");
  REQUIRE(contents.programs.size() == 1);
  const ExportedProgramContents& program = contents.programs[0];
  REQUIRE(program.inputs.size() == 2);
  CHECK(program.inputs[0].name == "input_ids");
  CHECK(program.inputs[0].type == "Long");
  REQUIRE(program.inputs[0].sizes.size() == 2);
  CHECK(program.inputs[0].sizes[1] == "6");
  CHECK(program.ranges.size() == 1);
  CHECK(program.ranges.at(program.inputs[0].sizes[0]) == "2 to 64");
  CHECK(program.outputs == std::vector<std::string>{"loss", "logits"});
  CHECK(program.operators.at("torch.ops.aten.linear.default") == 2);
  CHECK(contents.parameters.size() == 4);  // the decoder shares the embedding's weight
  CHECK(contents.parameter_count == 11 * 6 + 6 * 6 + 6);
  CHECK(contents.schema_version.substr(0, 2) == "8.");
  CHECK(contents.refusal == "");
}

TEST_CASE("inspect: operators in branches are counted, and refused evaluation is shown") {
  const ExportedContents branches = inspect_exported(kModels / "branches.pt2");
  CHECK(branches.programs[0].operators.at("torch.ops.aten.sin.default") == 1);
  CHECK(branches.programs[0].operators.at("torch.ops.higher_order.cond") == 1);
  const ExportedContents drop_path = inspect_exported(kModels / "drop_path.pt2");
  REQUIRE(drop_path.programs[0].evaluation_problems.size() == 1);
  CHECK(contains(to_text(drop_path), "eval() is refused: random numbers of torch.ops.aten.rand"));
  CHECK(inspect_exported(kModels / "two_programs.pt2").programs.size() == 2);
}

TEST_CASE("inspect: no memory is taken for the tensors") {
  Anatomy anatomy;
  CHECK(inspect_exported(kModels / "transformer.pt2").refusal == "");
  const std::int64_t largest = 1024;  // the tensors have 3092 bytes
  CHECK(anatomy.report().memory.peak < largest);
}

TEST_CASE("inspect: a file that is refused is described with the reason") {
  const TemporaryDirectory scratch;
  EditedArchive archive(kModels / "mlp.pt2");
  Json program = archive.program();
  program["graph_module"]["graph"]["nodes"][0]["target"] = "torch.ops.mine.linear.default";
  archive.set_program(program);
  write_file_atomically(scratch.path() / "model.pt2", archive.bytes());
  const ExportedContents contents = inspect_exported(scratch.path() / "model.pt2");
  CHECK(contents.refusal_code == "exported.operator");
  CHECK(contains(contents.refusal, "torch.ops.mine.linear.default"));
  const Json json = Json::parse(to_json(contents));
  CHECK(json["is_accepted"] == false);
  CHECK(json["programs"][0]["operators"]["torch.ops.mine.linear.default"] == 1);
  CHECK(json["parameters"].size() == 6);
  program["graph_module"]["signature"]["input_specs"].back()["user_input"]["arg"] = {
      {"x", {{"as_name", "n"}}}};
  archive.set_program(program);
  write_file_atomically(scratch.path() / "model.pt2", archive.bytes());
  const ExportedContents unknown = inspect_exported(scratch.path() / "model.pt2");
  CHECK(unknown.refusal_code == "exported.graph");
  REQUIRE(unknown.programs[0].inputs.size() == 1);
  CHECK(unknown.programs[0].inputs[0].type == "x");
  write_file_atomically(scratch.path() / "damaged.pt2", archive.bytes().substr(0, 5000));
  CHECK(code_of([&] { inspect_exported(scratch.path() / "damaged.pt2"); }) == "exported.archive");
}

}  // namespace exported_inspect_test
