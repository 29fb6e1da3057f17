#include <doctest/doctest.h>
#include <torch/torch.h>

#include <functional>

#include "hasten/base/text.h"
#include "hasten/exported/exported_module.h"
#include "unit/code_of.h"
#include "unit/exported/edited_archive.h"

namespace exported_hostile_files_test {

using namespace hasten;
using Json = nlohmann::json;

namespace {

const std::filesystem::path kModels = HASTEN_TEST_DATA "/oracle/data/exported";

std::string code_of_bytes(const std::string& bytes) {
  const TemporaryDirectory scratch;
  write_file_atomically(scratch.path() / "model.pt2", bytes);
  return code_of([&] { load_exported(scratch.path() / "model.pt2"); });
}

// The error of loading mlp.pt2 with another program.
std::string code_with(const std::function<void(Json& program)>& edit,
                      const std::string& model = "mlp") {
  EditedArchive archive(kModels / (model + ".pt2"));
  Json program = archive.program();
  edit(program);
  archive.set_program(program);
  return code_of_bytes(archive.bytes());
}

// The error of loading mlp.pt2 with another description of its first weight.
std::string code_with_weight(const std::function<void(Json& payload)>& edit) {
  EditedArchive archive(kModels / "mlp.pt2");
  Json config = archive.json("data/weights/model_weights_config.json");
  edit(config["config"]["net.0.weight"]);
  archive.records["data/weights/model_weights_config.json"] = config.dump();
  return code_of_bytes(archive.bytes());
}

Json& first_node(Json& program, const std::string& target = "") {
  for (Json& node : program["graph_module"]["graph"]["nodes"])
    if (target.empty() || node["target"] == target) return node;
  throw std::runtime_error("no node " + target);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

}  // namespace

TEST_CASE("exported: a copy with the same records is read") {
  CHECK(code_of_bytes(EditedArchive(kModels / "mlp.pt2").bytes()) == "none");
}

TEST_CASE("exported: damaged archives are refused") {
  const std::string good = EditedArchive(kModels / "mlp.pt2").bytes();
  for (std::size_t size = 0; size < good.size(); size += 97)
    CHECK(code_of_bytes(good.substr(0, size)) == "exported.archive");
  CHECK(code_of_bytes(good + "x") == "exported.archive");
  CHECK(code_of_bytes(std::string(1000, 'x')) == "exported.archive");
  CHECK(code_of_bytes(EditedArchive(kModels / "mlp.pt2").bytes(/*method=*/8)) ==
        "exported.archive");
  // Names of the same length, so that all offsets stay right.
  const auto renamed = [&](const std::string& to) { return replaced(good, "weight_1", to); };
  CHECK(code_of_bytes(renamed("../../xx")) == "exported.archive");
  CHECK(code_of_bytes(renamed("a/./bbbb")) == "exported.archive");
  CHECK(code_of_bytes(renamed("a\\..\\bbb")) == "exported.archive");
  CHECK(code_of_bytes(renamed("weight_0")) == "exported.archive");
  CHECK(code_of_bytes(replaced(good, "model/archive_format", "other/archive_format")) ==
        "exported.archive");
}

TEST_CASE("exported: every changed byte is refused or harmless") {
  const std::string good = EditedArchive(kModels / "mlp.pt2").bytes();
  for (std::size_t at = 0; at < good.size(); at += 61) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x55);
    const std::string code = code_of_bytes(bad);
    CAPTURE(at);
    CHECK((code == "none" || starts_with(code, "exported.")));
  }
}

TEST_CASE("exported: other versions and other kinds of programs are refused") {
  EditedArchive archive(kModels / "mlp.pt2");
  archive.records["archive_format"] = "pt3";
  CHECK(code_of_bytes(archive.bytes()) == "exported.version");
  archive = EditedArchive(kModels / "mlp.pt2");
  archive.records["byteorder"] = "big";
  CHECK(code_of_bytes(archive.bytes()) == "exported.version");
  CHECK(code_with([](Json& p) { p["schema_version"]["major"] = 9; }) == "exported.version");
  CHECK(code_with([](Json& p) { p["verifiers"] = {"ATEN"}; }) == "exported.program");
  archive = EditedArchive(kModels / "mlp.pt2");
  archive.records["models/other.json"] = archive.records["models/model.json"];
  CHECK(code_of_bytes(archive.bytes()) == "exported.program");
  archive.records.erase("models/other.json");
  archive.records.erase("models/model.json");
  CHECK(code_of_bytes(archive.bytes()) == "exported.program");
}

TEST_CASE("exported: JSON that is damaged, nested too deeply or ambiguous is refused") {
  const auto code_of_json = [](const std::string& json) {
    EditedArchive archive(kModels / "mlp.pt2");
    archive.records["models/model.json"] = json;
    return code_of_bytes(archive.bytes());
  };
  const std::string good = EditedArchive(kModels / "mlp.pt2").records["models/model.json"];
  CHECK(code_of_json("") == "exported.graph");
  CHECK(code_of_json("{}") == "exported.graph");
  CHECK(code_of_json(good.substr(0, good.size() / 2)) == "exported.graph");
  CHECK(code_of_json(std::string(1000000, '[')) == "exported.graph");
  CHECK(code_of_json("{\"verifiers\": [], " + good.substr(1)) == "exported.graph");
}

TEST_CASE("exported: operators that a file may not call are refused by name") {
  const auto code_of_target = [](const char* target) {
    return code_with([&](Json& p) { first_node(p)["target"] = target; });
  };
  for (const char* target :
       {"torch.ops.aten.from_file.default", "torch.ops.aten.set_.source_Tensor",
        "torch.ops.aten._print.default", "torch.ops.aten.no_such_operator.default",
        "torch.ops.aten.add.out", "torch.ops.prims.add.default", "torch.ops.c10d.barrier.default",
        "torch.ops.higher_order.flex_attention", "os.system", ""})
    CHECK_MESSAGE(code_of_target(target) == "exported.operator", target);
  try {
    const TemporaryDirectory scratch;
    EditedArchive archive(kModels / "mlp.pt2");
    Json program = archive.program();
    first_node(program)["target"] = "torch.ops.mine.fast_linear.default";
    archive.set_program(program);
    write_file_atomically(scratch.path() / "model.pt2", archive.bytes());
    load_exported(scratch.path() / "model.pt2");
    FAIL("loaded");
  } catch (const DataError& error) {
    CHECK(std::string(error.what()).find("torch.ops.mine.fast_linear.default") !=
          std::string::npos);
    CHECK(std::string(error.what()).find("module net.0") != std::string::npos);
  }
}

TEST_CASE("exported: arguments that do not fit the operator's schema are refused") {
  const auto code_of_argument = [](std::size_t index, const Json& value) {
    return code_with([&](Json& p) {
      first_node(p, "torch.ops.aten.dropout.default")["inputs"][index]["arg"] = value;
    });
  };
  CHECK(code_of_argument(0, {{"as_int", 3}}) == "none");  // a number for a tensor
  for (const Json& value :
       {Json{{"as_string", "x"}}, Json{{"as_ints", {1, 2}}}, Json::object(), Json(7),
        Json{{"as_tensor", {{"name", "nothing"}}}}, Json{{"as_none", true}},
        Json{{"as_custom_obj", {{"name", "x"}, {"class_fqn", "y"}}}},
        Json{{"as_device", {{"type", "bogus"}, {"index", nullptr}}}}}) {
    for (const std::size_t index : {0, 1, 2})
      CHECK_MESSAGE(code_of_argument(index, value) == "exported.graph", value.dump());
  }
  CHECK(code_with([](Json& p) { first_node(p)["inputs"].erase(0); }) == "exported.graph");
  CHECK(code_with([](Json& p) { first_node(p)["inputs"].push_back(first_node(p)["inputs"][0]); }) ==
        "exported.graph");
  CHECK(code_with([](Json& p) { first_node(p)["inputs"][0]["name"] = "nonsense"; }) ==
        "exported.graph");
}

TEST_CASE("exported: values that are missing or defined twice are refused") {
  CHECK(code_with([](Json& p) { p["graph_module"]["graph"]["nodes"].erase(0); }) ==
        "exported.graph");
  CHECK(code_with([](Json& p) {
          first_node(p)["outputs"].push_back(first_node(p)["outputs"][0]);
        }) == "exported.graph");
  CHECK(code_with([](Json& p) {
          p["graph_module"]["graph"]["outputs"][0] = {{"as_tensor", {{"name", "nothing"}}}};
        }) == "exported.graph");
  CHECK(code_with([](Json& p) { p["graph_module"]["graph"]["outputs"] = Json::array(); }) ==
        "exported.graph");
  CHECK(
      code_with([](Json& p) {
        p["graph_module"]["signature"]["input_specs"][0] = {{"token", {{"arg", {{"name", "x"}}}}}};
      }) == "exported.graph");
}

TEST_CASE("exported: guards are arithmetic with sizes and nothing else") {
  const auto code_of_guard = [](const std::string& guard) {
    return code_with([&](Json& p) { p["guards_code"] = {guard}; });
  };
  CHECK(code_of_guard("L['x'].size()[0] % 2 == 0 and not L['flat_args'][0].size()[1] > 9") ==
        "none");
  CHECK(code_of_guard("__import__('os').system('x')") == "exported.graph");
  CHECK(code_of_guard("L['unknown'].size()[0] == 1") == "exported.graph");
  CHECK(code_of_guard("L['flat_args'][9].size()[0] == 1") == "exported.graph");
  CHECK(code_of_guard(std::string(200000, '(') + "1" + std::string(200000, ')')) ==
        "exported.graph");
  CHECK(code_of_guard(std::string(200000, '-') + "1") == "exported.graph");
}

TEST_CASE("exported: tensors with a wrong size, and pickled ones, are refused") {
  const Json huge = {{"as_int", std::int64_t{1} << 62}}, negative = {{"as_int", -1}};
  CHECK(code_with_weight([](Json& w) { w["use_pickle"] = true; }) == "exported.payload");
  CHECK(code_with_weight([](Json& w) { w["path_name"] = "../../archive_format"; }) ==
        "exported.graph");
  CHECK(code_with_weight([](Json& w) { w["path_name"] = "weight_99"; }) == "exported.graph");
  CHECK(code_with_weight([&](Json& w) { w["tensor_meta"]["sizes"][0] = huge; }) ==
        "exported.payload");
  CHECK(code_with_weight([&](Json& w) { w["tensor_meta"]["strides"][0] = huge; }) ==
        "exported.payload");
  CHECK(code_with_weight([&](Json& w) { w["tensor_meta"]["storage_offset"] = huge; }) ==
        "exported.payload");
  CHECK(code_with_weight([&](Json& w) { w["tensor_meta"]["sizes"][0] = negative; }) ==
        "exported.graph");
  CHECK(code_with_weight([](Json& w) { w["tensor_meta"]["sizes"].erase(0); }) == "exported.graph");
  CHECK(code_with_weight([](Json& w) {
          w["tensor_meta"]["sizes"][0] = {{"as_int", 1}};
        }) == "exported.payload");
  CHECK(code_with_weight([](Json& w) { w["tensor_meta"]["dtype"] = 99; }) == "exported.graph");
  CHECK(code_with_weight([](Json& w) { w["tensor_meta"]["layout"] = 1; }) == "exported.graph");
}

TEST_CASE("exported: recurrent layers with wrong weights are refused before a kernel reads them") {
  const auto code_of_run = [](std::size_t argument, const Json& value) {
    EditedArchive archive(kModels / "lstm.pt2");
    Json program = archive.program();
    first_node(program, "torch.ops.aten.lstm.input")["inputs"][argument]["arg"] = value;
    archive.set_program(program);
    const TemporaryDirectory scratch;
    write_file_atomically(scratch.path() / "model.pt2", archive.bytes());
    const auto model = load_exported(scratch.path() / "model.pt2");
    return code_of([&] { model->forward(torch::zeros({4, 6}, at::kLong)); });
  };
  const Json bias = {{"name", "p_rnn_bias_ih_l0"}};
  CHECK(code_of_run(4, {{"as_int", 2}}) == "none");  // as it was
  CHECK(code_of_run(4, {{"as_int", 3}}) == "exported.graph");
  CHECK(code_of_run(4, {{"as_int", 1000000}}) == "exported.graph");
  CHECK(code_of_run(2, {{"as_tensors", Json::array()}}) == "exported.graph");
  CHECK(code_of_run(2, {{"as_tensors", Json(std::vector<Json>(16, bias))}}) == "exported.graph");
  CHECK(code_of_run(7, {{"as_bool", false}}) == "exported.graph");
}

}  // namespace exported_hostile_files_test
