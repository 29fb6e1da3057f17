#include "hasten/exported/exported_module.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <csignal>
#include <thread>

#include "exported/exported_parts.h"
#include "hasten/base/files.h"
#include "hasten/base/log.h"
#include "unit/code_of.h"
#include "unit/exported/edited_archive.h"

namespace exported_module_test {

using namespace hasten;

namespace {

const std::filesystem::path kModels = HASTEN_TEST_DATA "/oracle/data/exported";

std::shared_ptr<ExportedModule> load(const std::string& name) {
  return load_exported(kModels / (name + ".pt2"));
}

std::vector<std::string> parameter_names(const torch::nn::Module& module) {
  return module.named_parameters().keys();
}

// Returns the message of the error that a call throws, or an empty string.
template <class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("exported: parameters, buffers, inputs and outputs have Python's names") {
  const auto cnn = load("cnn");
  CHECK(parameter_names(*cnn) == std::vector<std::string>{"conv.weight", "norm.weight", "norm.bias",
                                                          "head.weight", "head.bias"});
  CHECK(cnn->named_buffers().keys() == std::vector<std::string>{"norm.running_mean",
                                                                "norm.running_var",
                                                                "norm.num_batches_tracked"});
  CHECK(cnn->input_names() == std::vector<std::string>{"x"});
  CHECK(cnn->output_names() == std::vector<std::string>{"output"});
  const auto transformer = load("transformer");
  CHECK(transformer->input_names() ==
        std::vector<std::string>{"input_ids", "attention_mask", "labels"});
  CHECK(transformer->output_names() == std::vector<std::string>{"loss", "logits"});
  CHECK(transformer->named_buffers().contains("ids"));
  CHECK_FALSE(transformer->state_dict().contains("ids"));  // it is not persistent
}

TEST_CASE("exported: a shared parameter is one parameter with two names in state_dict") {
  const auto model = load("tied");
  CHECK(parameter_names(*model) ==
        std::vector<std::string>{"embed.weight", "hidden.weight", "hidden.bias"});
  const TensorDict state = model->state_dict();
  REQUIRE(state.contains("decoder.weight"));
  CHECK(state.at("decoder.weight").data_ptr() == state.at("embed.weight").data_ptr());
}

TEST_CASE("exported: frozen parameters need no gradients") {
  const auto model = load("frozen");
  for (const auto& item : model->named_parameters())
    CHECK(item.value().requires_grad() == (item.key().find("norm") == std::string::npos));
}

TEST_CASE("exported: inputs are given by name or in order") {
  const auto model = load("mlp");
  model->eval();
  const at::Tensor x = torch::randn({4, 5});
  const at::Tensor by_name = model->forward(TensorDict{{"x", x}, {"unused", x}}).at("output");
  CHECK(at::equal(by_name, model->forward(x).at("output")));
  CHECK(at::equal(by_name, model->forward(std::vector<at::Tensor>{x}).at("output")));
}

TEST_CASE("exported: inputs that the export does not allow are refused") {
  const auto mlp = load("mlp"), transformer = load("transformer"), frozen = load("frozen");
  const auto message = [&](const at::Tensor& x) { return message_of([&] { mlp->forward(x); }); };
  CHECK(contains(message(torch::randn({4, 6})), "dimension 1 of input x: got 6, expected 5"));
  CHECK(contains(message(torch::randn({4, 5, 1})), "3 dimensions"));
  CHECK(contains(message(torch::randn({4, 5}, at::kDouble)), "the type of input x: got Double"));
  CHECK(contains(message(torch::randn({1, 5})), "got 1, expected 2 to 64"));
  CHECK(contains(message(torch::randn({65, 5})), "got 65, expected 2 to 64"));
  CHECK(contains(message(at::Tensor()), "an undefined tensor"));
  CHECK(contains(message_of([&] { frozen->forward(torch::randn({5, 5})); }), "got 5, expected 4"));
  const at::Tensor ids = torch::ones({4, 6}, at::kLong), labels = torch::ones({4}, at::kLong);
  CHECK(code_of([&] { transformer->forward(ids, ids, labels); }) == "none");
  CHECK(code_of([&] { transformer->forward(ids, ids, labels.slice(0, 0, 3)); }) ==
        "exported.inputs");
  CHECK(contains(message_of([&] {
                   transformer->forward(TensorDict{{"input_ids", ids}});
                 }),
                 "got input_ids, expected input_ids, attention_mask, labels"));
  CHECK(code_of([&] { transformer->forward(ids); }) == "exported.inputs");
}

TEST_CASE("exported: a guard of the export is checked") {
  const TemporaryDirectory scratch;
  EditedArchive archive(kModels / "mlp.pt2");
  nlohmann::json program = archive.program();
  program["guards_code"] = {"L['x'].size()[0] <= 2*(L['x'].size()[0] // 2)"};
  archive.set_program(program);
  write_file_atomically(scratch.path() / "even.pt2", archive.bytes());
  const auto model = load_exported(scratch.path() / "even.pt2");
  CHECK(code_of([&] { model->forward(torch::randn({4, 5})); }) == "none");
  CHECK(contains(message_of([&] {
                   model->forward(torch::randn({3, 5}));
                 }),
                 "L['x'].size()[0] <= 2*"));
}

TEST_CASE("exported: evaluation is deterministic, and refused if it would be wrong") {
  const auto mlp = load("mlp"), drop_path = load("drop_path"), two = load("two_programs");
  const at::Tensor x = torch::randn({4, 5});
  CHECK_FALSE(at::equal(mlp->forward(x).at("output"), mlp->forward(x).at("output")));
  mlp->eval();
  CHECK(at::equal(mlp->forward(x).at("output"), mlp->forward(x).at("output")));
  mlp->train();
  CHECK_FALSE(at::equal(mlp->forward(x).at("output"), mlp->forward(x).at("output")));
  CHECK(code_of([&] { drop_path->eval(); }) == "exported.evaluation");
  CHECK(contains(message_of([&] { drop_path->eval(); }), "torch.ops.aten.rand.default"));
  CHECK(drop_path->is_training());
  two->eval();
  CHECK(at::equal(two->forward(x).at("output"), two->forward(x).at("output")));
}

TEST_CASE("exported: a batch norm without running statistics is evaluated with the batch") {
  const TemporaryDirectory scratch;
  EditedArchive archive(kModels / "cnn.pt2");
  nlohmann::json program = archive.program();
  for (auto& node : program["graph_module"]["graph"]["nodes"])
    for (auto& input : node["inputs"])
      if (input["name"] == "running_mean" || input["name"] == "running_var")
        input["arg"] = {{"as_none", true}};
  archive.set_program(program);
  write_file_atomically(scratch.path() / "model.pt2", archive.bytes());
  const auto model = load_exported(scratch.path() / "model.pt2");
  const at::Tensor x = torch::randn({4, 2, 4, 4});
  const at::Tensor trained = model->forward(x).at("output");
  model->eval();
  CHECK(at::allclose(model->forward(x).at("output"), trained));
}

TEST_CASE("exported: a clone has its own tensors and the same program") {
  for (const char* name : {"cnn", "tied", "transformer"}) {
    CAPTURE(name);
    const auto model = load(name);
    model->eval();
    const auto copy = std::dynamic_pointer_cast<ExportedModule>(model->clone());
    REQUIRE(copy != nullptr);
    CHECK_FALSE(copy->is_training());
    REQUIRE(parameter_names(*copy) == parameter_names(*model));
    for (const auto& item : model->named_parameters()) {
      const at::Tensor other = copy->named_parameters()[item.key()];
      CHECK(at::equal(other, item.value()));
      CHECK(other.data_ptr() != item.value().data_ptr());
      CHECK(other.requires_grad() == item.value().requires_grad());
    }
    const torch::NoGradGuard no_grad;
    copy->parameters()[0].zero_();
    CHECK_FALSE(at::equal(copy->parameters()[0], model->parameters()[0]));
  }
}

TEST_CASE("exported: to() changes the type of everything that is floating-point") {
  for (const char* name : {"mlp", "cnn", "branches"}) {
    CAPTURE(name);
    const auto model = load(name);
    model->eval();
    const at::Tensor x =
        std::string(name) == "cnn" ? torch::randn({4, 2, 4, 4}) : torch::randn({4, 5});
    const at::Tensor before = model->forward(x).at("output");
    model->to(at::kDouble);
    const at::Tensor after = model->forward(x.to(at::kDouble)).at("output");
    CHECK(after.dtype() == at::dtype(at::kDouble).dtype());
    CHECK(at::allclose(after.to(at::kFloat), before, 1e-5, 1e-6));
    const TemporaryDirectory scratch;
    model->save(scratch.path() / "float.pt2");  // in the types of the export
    CHECK(load_exported(scratch.path() / "float.pt2")->parameters()[0].dtype() == x.dtype());
    model->to(at::kFloat);
    CHECK(at::allclose(model->forward(x).at("output"), before, 1e-6, 1e-6));
  }
}

// ThreadSanitizer finds a conversion that is not protected.
TEST_CASE("exported: several threads may be the first to use constants of another type") {
  const auto model = load("branches"), other = load("branches");
  for (const auto& each : {model, other}) {
    each->eval();
    each->to(at::kDouble);
  }
  const at::Tensor x = torch::randn({4, 5}, at::kDouble);
  const at::Tensor expected = other->forward(x).at("output");
  at::Tensor in_thread;
  std::thread thread([&] { in_thread = model->forward(x).at("output"); });
  const at::Tensor here = model->forward(x).at("output");
  thread.join();
  CHECK(at::allclose(here, expected));
  CHECK(at::allclose(in_thread, expected));
}

TEST_CASE("exported: embeddings and layer norms in a region are found") {
  const TemporaryDirectory scratch;
  EditedArchive archive(kModels / "transformer.pt2");
  nlohmann::json program = archive.program();
  // All nodes become the graph of a region, as if forward() began with torch.enable_grad().
  nlohmann::json& graph = program["graph_module"]["graph"];
  const auto argument = [](const nlohmann::json& value) {
    return nlohmann::json{{"name", ""}, {"arg", value}, {"kind", 1}};
  };
  nlohmann::json enabled, body, region;
  enabled["as_bool"] = true;
  body["as_graph"]["graph"] = graph;
  region["target"] = "torch.ops.higher_order.wrap_with_set_grad_enabled";
  region["inputs"] = {argument(enabled), argument(body)};
  for (const auto& input : graph["inputs"]) region["inputs"].push_back(argument(input));
  region["outputs"] = graph["outputs"];
  graph["nodes"] = nlohmann::json::array();
  graph["nodes"].push_back(region);
  archive.set_program(program);
  write_file_atomically(scratch.path() / "model.pt2", archive.bytes());

  const auto plain = load("transformer"), model = load_exported(scratch.path() / "model.pt2");
  const exported::Program& expected = *plain->parts().programs.front();
  const exported::Program& found = *model->parts().programs.front();
  CHECK(found.layer_norm_parameters == expected.layer_norm_parameters);
  CHECK(found.embedding_tables == expected.embedding_tables);
  CHECK(found.vocabularies == expected.vocabularies);
  CHECK(found.linear_weights == expected.linear_weights);
  CHECK(found.vocabularies.contains("input_ids"));
  CHECK(model->undecayed_parameters()->contains("norm1.weight"));
  const TensorDict inputs = {{"input_ids", torch::ones({4, 6}, at::kLong)},
                             {"attention_mask", torch::ones({4, 6}, at::kLong)},
                             {"labels", torch::zeros({4}, at::kLong)}};
  CHECK(at::equal(model->forward(inputs).at("logits"), plain->forward(inputs).at("logits")));
}

TEST_CASE("exported: a file that cannot be written is an error and leaves nothing behind") {
  const auto model = load("mlp");
  const TemporaryDirectory scratch;
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string code = code_of([&] { model->save(scratch.path() / "model.pt2"); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  CHECK(code == "io.write");
  CHECK(std::filesystem::is_empty(scratch.path()));
  model->save(scratch.path() / "model.pt2");
  CHECK(parameter_names(*load_exported(scratch.path() / "model.pt2")) == parameter_names(*model));
}

TEST_CASE("exported: an error of an operator names the node and the module") {
  const auto model = load("lstm");
  try {
    model->forward(torch::full({4, 6}, 1000, at::kLong));  // no such token
    FAIL("an index out of range was accepted");
  } catch (const c10::Error& error) {
    CHECK(contains(error.what(), "torch.ops.aten.embedding.default"));
    CHECK(contains(error.what(), "module \"embed\""));
  }
}

TEST_CASE("exported: training a model that was exported for evaluation logs a warning") {
  const TemporaryDirectory scratch;
  EditedArchive archive(kModels / "mlp.pt2");
  nlohmann::json program = archive.program();
  for (auto& node : program["graph_module"]["graph"]["nodes"])
    for (auto& input : node["inputs"])
      if (input["name"] == "train") input["arg"] = {{"as_bool", false}};
  archive.set_program(program);
  write_file_atomically(scratch.path() / "model.pt2", archive.bytes());
  std::vector<std::string> lines;
  set_log_sink([&](std::string_view line) { lines.emplace_back(line); });
  const auto model = load_exported(scratch.path() / "model.pt2");
  model->train();
  model->train();
  set_log_sink({});
  REQUIRE(lines.size() == 1);
  CHECK(contains(lines[0], "exported in evaluation mode"));
}

}  // namespace exported_module_test
