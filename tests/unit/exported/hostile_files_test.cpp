#include <doctest/doctest.h>
#include <torch/torch.h>

#include <functional>

#include "exported/kernel_checks.h"
#include "exported/operators.h"
#include "formats/zip_archive.h"
#include "fuzz/zip_bytes.h"
#include "hasten/base/error.h"
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

// Returns the error code of loading a model with an edited program.
std::string code_with(const std::function<void(Json& program)>& edit,
                      const std::string& model = "mlp") {
  EditedArchive archive(kModels / (model + ".pt2"));
  Json program = archive.program();
  edit(program);
  archive.set_program(program);
  return code_of_bytes(archive.bytes());
}

// Returns the error code of loading mlp.pt2 with an edited description of its first weight.
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
  // The new names have the same length, so that all offsets stay valid.
  const auto renamed = [&](const std::string& to) { return replaced(good, "weight_1", to); };
  CHECK(code_of_bytes(renamed("../../xx")) == "exported.archive");
  CHECK(code_of_bytes(renamed("a/./bbbb")) == "exported.archive");
  CHECK(code_of_bytes(renamed("a\\..\\bbb")) == "exported.archive");
  CHECK(code_of_bytes(renamed("weight_0")) == "exported.archive");
  CHECK(code_of_bytes(replaced(good, "model/archive_format", "other/archive_format")) ==
        "exported.archive");
}

TEST_CASE("exported: records that share bytes are refused") {
  // The bytes of the record m/a are the record m/b with its header. A file of such records can
  // expand to any size.
  const std::string inner = archive_of({{"m/b", "content"}}), record = inner.substr(0, 40);
  const std::string outer = archive_of({{"m/a", record}});
  const std::size_t begin = 33, list = begin + record.size();
  std::string entry = inner.substr(record.size(), 49);
  entry.replace(42, 4, zip_number(begin, 4));
  const std::string archive = outer.substr(0, list + 49) + entry + zip_number(0x06054b50, 4) +
                              zip_number(0, 4) + zip_number(2, 2) + zip_number(2, 2) +
                              zip_number(98, 4) + zip_number(list, 4) + zip_number(0, 2);
  const TemporaryDirectory scratch;
  const std::filesystem::path file = scratch.path() / "model.pt2";
  write_file_atomically(file, archive_of({{"m/a", record}, {"m/b", "content"}}));
  CHECK(ZipArchive(file).names().size() == 2);
  write_file_atomically(file, archive);
  CHECK_THROWS_WITH_AS(ZipArchive{file}, doctest::Contains("two records share bytes"), DataError);
}

TEST_CASE("exported: a short archive does not point outside of the file") {
  // The archive has 46 bytes: the signature of a first record, the locator of a 64-bit end record,
  // and an end record.
  for (const char high : {'\0', '\x10', '\xFF'}) {
    std::string archive("PK\3\4PK\6\7", 8);
    archive.resize(12, '\0');
    archive += std::string(7, high) + std::string(1, '\0') + std::string(4, '\0');
    archive += std::string("PK\5\6", 4) + std::string(18, '\0');
    CHECK(code_of_bytes(archive) == "exported.archive");
  }
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

TEST_CASE("exported: a newer minor version is read, and its unknown kinds of values are refused") {
  const auto newer = [](Json& p) -> Json& {
    p["schema_version"]["minor"] = 99;
    p["a_new_field"] = {{"x", 1}};
    return p;
  };
  CHECK(code_with([&](Json& p) { newer(p); }) == "none");
  CHECK(code_with([&](Json& p) {
          first_node(newer(p), "torch.ops.aten.dropout.default")["inputs"][1]["arg"] = {
              {"as_float_lists", {{1.0}}}};
        }) == "exported.graph");
  CHECK(code_with([&](Json& p) {
          for (auto& value : newer(p)["graph_module"]["graph"]["tensor_values"])
            value["dtype"] = 99;
        }) == "exported.graph");
}

TEST_CASE("exported: the program for training may be called train or model") {
  EditedArchive archive(kModels / "two_programs.pt2");
  const std::map<std::string, std::string> records = archive.records;
  for (const auto& [name, content] : records) {
    const std::string renamed =
        replaced(replaced(name, "/train_", "/model_"), "/train.", "/model.");
    archive.records.erase(name);
    archive.records[renamed] = content;
  }
  const TemporaryDirectory scratch;
  write_file_atomically(scratch.path() / "model.pt2", archive.bytes());
  const auto model = load_exported(scratch.path() / "model.pt2");
  model->eval();  // a file with only the program for training refuses this
  CHECK(model->forward(torch::ones({3, 5})).at("output").sizes() == at::IntArrayRef{3, 3});
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
        "torch.ops.aten.mkldnn_rnn_layer.default", "torch.ops.aten.native_batch_norm.default",
        "torch.ops.aten.quantized_lstm_cell.default", "torch.ops.aten.linalg_lu_solve.default",
        "torch.ops.aten.embedding_dense_backward.default",
        "torch.ops.aten.rrelu_with_noise.default", "torch.ops.aten.segment_reduce.default",
        "torch.ops.aten.sparse_coo_tensor.size", "torch.ops.aten._print.default",
        "torch.ops.aten.no_such_operator.default", "torch.ops.aten.add.out",
        "torch.ops.prims.add.default", "torch.ops.c10d.barrier.default",
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
  CHECK(code_of_argument(0, {{"as_int", 3}}) == "none");  // a number is accepted as a tensor
  for (const Json& value :
       {Json{{"as_string", "x"}}, Json{{"as_ints", {1, 2}}}, Json::object(), Json(7),
        Json{{"as_tensor", {{"name", "nothing"}}}}, Json{{"as_none", true}},
        Json{{"as_custom_obj", {{"name", "x"}, {"class_fqn", "y"}}}},
        Json{{"as_device", {{"type", "bogus"}, {"index", nullptr}}}}}) {
    for (const std::size_t index : {0, 1, 2})
      CHECK_MESSAGE(code_of_argument(index, value) == "exported.graph", value.dump());
  }
  CHECK(code_with([](Json& p) { first_node(p)["inputs"].erase(0); }) == "exported.graph");
  const auto code_of_dimensions = [](const Json& value) {
    return code_with(
        [&](Json& p) { first_node(p, "torch.ops.aten.mean.dim")["inputs"][1]["arg"] = value; },
        "cnn");
  };
  CHECK(code_of_dimensions({{"as_ints", {2, 3}}}) == "none");  // unchanged
  CHECK(code_of_dimensions({{"as_sym_int", {{"as_int", 2}}}}) == "none");
  CHECK(code_of_dimensions({{"as_sym_int", {{"as_float", 2.5}}}}) == "exported.graph");
  CHECK(code_of_dimensions({{"as_sym_float", {{"as_float", 2.5}}}}) == "exported.graph");
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
  std::string chain = "1 == 1";
  for (int i = 0; i < 900; ++i) chain += " + 1";
  CHECK(code_of_guard(chain) == "none");
  for (int i = 0; i < 500000; ++i) chain += "+1";
  CHECK(code_of_guard(chain) == "exported.graph");
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
  CHECK(code_with_weight([](Json& w) {
          Json& meta = w["tensor_meta"];
          meta["sizes"].erase(1);
          meta["strides"].erase(1);
          // The last element has the index 2^64 - 1.
          meta["sizes"][0]["as_int"] = 4;
          meta["strides"][0]["as_int"] = 6148914691236517205;
        }) == "exported.payload");
  CHECK(code_with_weight([&](Json& w) { w["tensor_meta"]["sizes"][0] = negative; }) ==
        "exported.graph");
  CHECK(code_with_weight([](Json& w) { w["tensor_meta"]["sizes"].erase(0); }) == "exported.graph");
  CHECK(code_with_weight([](Json& w) {
          w["tensor_meta"]["sizes"][0] = {{"as_int", 1}};
        }) == "exported.payload");
  CHECK(code_with_weight([](Json& w) { w["tensor_meta"]["dtype"] = 99; }) == "exported.graph");
  CHECK(code_with_weight([](Json& w) { w["tensor_meta"]["layout"] = 1; }) == "exported.graph");
}

TEST_CASE("exported: a module path that nests too deeply is refused") {
  const auto code_of_name = [](const std::string& name) {
    EditedArchive archive(kModels / "mlp.pt2");
    Json program = archive.program();
    for (Json& spec : program["graph_module"]["signature"]["input_specs"])
      if (spec.contains("parameter") && spec["parameter"]["parameter_name"] == "net.0.weight")
        spec["parameter"]["parameter_name"] = name;
    archive.set_program(program);
    Json weights = archive.json("data/weights/model_weights_config.json");
    weights["config"][name] = weights["config"]["net.0.weight"];
    archive.records["data/weights/model_weights_config.json"] = weights.dump();
    return code_of_bytes(archive.bytes());
  };
  std::string nested = "weight";
  for (int i = 0; i < 90; ++i) nested = "a." + nested;
  CHECK(code_of_name(nested) == "none");
  for (int i = 0; i < 2000; ++i) nested = "a." + nested;
  CHECK(code_of_name(nested) == "exported.payload");
  CHECK(code_of_name("net..weight") == "exported.payload");
}

TEST_CASE("exported: a computed setting of training or evaluation is read like any other") {
  CHECK(code_with([](Json& p) {
          Json& node = first_node(p, "torch.ops.aten.dropout.default");
          node["target"] = "torch.ops.aten.native_dropout.default";
          node["inputs"][2]["arg"] = {{"as_none", true}};
        }) == "none");
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
  CHECK(code_of_run(4, {{"as_int", 2}}) == "none");  // unchanged
  CHECK(code_of_run(4, {{"as_int", 3}}) == "exported.graph");
  CHECK(code_of_run(4, {{"as_int", 1000000}}) == "exported.graph");
  CHECK(code_of_run(2, {{"as_tensors", Json::array()}}) == "exported.graph");
  CHECK(code_of_run(2, {{"as_tensors", Json(std::vector<Json>(16, bias))}}) == "exported.graph");
  CHECK(code_of_run(7, {{"as_bool", false}}) == "exported.graph");
}

namespace {

// Returns the error code of an operator's check. `stack` has the first arguments, and the other
// arguments get the schema's defaults.
std::string code_of_call(const std::string& base, const std::string& overload,
                         std::vector<c10::IValue> stack) {
  const auto op = exported::find_operator({"aten", base, overload});
  REQUIRE(op);
  const auto& arguments = op->schema().arguments();
  while (stack.size() < arguments.size()) stack.push_back(*arguments[stack.size()].default_value());
  const exported::KernelCheck check = exported::kernel_check(base);
  REQUIRE(bool(check != nullptr));
  return code_of([&] { check(op->schema(), stack); });
}

}  // namespace

TEST_CASE("exported: operands that a kernel would trust are checked") {
  using torch::randn;
  const auto longs = [](std::vector<std::int64_t> numbers) { return torch::tensor(numbers); };
  const auto lstm_cell = [&](const at::Tensor& state, const at::Tensor& weight) {
    return code_of_call("lstm_cell", "",
                        {randn({3, 4}), std::vector<at::Tensor>{state, randn({3, 5})}, weight,
                         randn({20, 5}), c10::IValue(), c10::IValue()});
  };
  CHECK(lstm_cell(randn({3, 5}), randn({20, 4})) == "none");
  CHECK(lstm_cell(randn({2, 5}), randn({20, 4})) == "exported.graph");
  CHECK(lstm_cell(randn({3, 5}), randn({4, 4})) == "exported.graph");
  const auto padded = [&](std::vector<std::int64_t> sizes) {
    return code_of_call("_pad_packed_sequence", "", {randn({6, 2}), longs(sizes), true, 0.0, 0});
  };
  CHECK(padded({3, 2, 1}) == "none");
  CHECK(padded({1, 4, 1}) == "exported.graph");
  CHECK(padded({3, 3, 3}) == "exported.graph");
  CHECK(padded({3, -1}) == "exported.graph");
  const auto packed = [&](std::vector<std::int64_t> lengths) {
    return code_of_call("_pack_padded_sequence", "", {randn({2, 4, 3}), longs(lengths), true});
  };
  CHECK(packed({4, 1}) == "none");
  CHECK(packed({5, 1}) == "exported.graph");
  CHECK(packed({4, 1, 1}) == "exported.graph");
  CHECK(code_of_call("_weight_norm", "", {randn({4, 3}), randn({4, 1})}) == "none");
  CHECK(code_of_call("_weight_norm", "", {randn({4, 3}), randn({1, 1})}) == "exported.graph");
  CHECK(code_of_call("_weight_norm", "", {randn({4, 3}), randn({1, 3}), 1}) == "none");
  const auto attention = [&](std::int64_t keys, std::int64_t values) {
    return code_of_call("scaled_dot_product_attention", "",
                        {randn({1, 2, 5, 4}), randn({1, 2, keys, 4}), randn({1, 2, values, 4})});
  };
  CHECK(attention(7, 7) == "none");
  CHECK(attention(3, 7) == "exported.graph");
  const auto ctc = [&](std::int64_t target, std::int64_t length) {
    return code_of_call("ctc_loss", "Tensor",
                        {randn({5, 1, 4}), longs({1, target}).unsqueeze(0), longs({5}),
                         longs({length}), 0, 1, false});
  };
  CHECK(ctc(3, 2) == "none");
  CHECK(ctc(4, 2) == "exported.graph");
  CHECK(ctc(3, -2) == "exported.graph");
}

}  // namespace exported_hostile_files_test
