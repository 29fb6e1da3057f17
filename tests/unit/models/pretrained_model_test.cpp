// Any PreTrainedModel saves and loads its weights: buffers of every type, tied tensors, and tensors
// of different shapes.
#include "hasten/models/pretrained_model.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/formats/safetensors.h"
#include "hasten/formats/weights.h"
#include "hasten/models/bert.h"
#include "hasten/tokenizers/bert_tokenizer.h"
#include "unit/code_of.h"

namespace models_pretrained_model_test {

using namespace hasten;

namespace {

// The base of the models of these tests. `initialize` fills the weights with 7 and records their
// names.
struct RecordingModel : PreTrainedModel {
  ModelOutput forward(const TensorDict&) override { return {}; }
  std::string config_json() const override { return "{}\n"; }
  std::int64_t max_length() const override { return 8; }
  std::int64_t vocab_size() const override { return 8; }
  std::int64_t num_labels() const override { return 2; }
  void initialize(const std::vector<std::string>* names = nullptr) override {
    const torch::NoGradGuard no_grad;
    for (const auto& item : named_parameters()) {
      if (names && std::find(names->begin(), names->end(), item.key()) == names->end()) continue;
      item.value().fill_(7);
      initialized.push_back(item.key());
    }
  }
  std::vector<std::string> initialized;
};

// BatchNorm counts its batches in an int64 buffer; InstanceNorm registers undefined buffers.
struct NormsModel : RecordingModel {
  NormsModel()
      : batch(register_module("batch", torch::nn::BatchNorm1d(3))),
        instance(register_module(
            "instance",
            torch::nn::InstanceNorm1d(torch::nn::InstanceNorm1dOptions(3).affine(true)))) {
    register_buffer("flags", at::tensor({1, 0}, at::kByte).to(at::kBool));
  }
  torch::nn::BatchNorm1d batch;
  torch::nn::InstanceNorm1d instance;
};

// One table has two names. `tied` chooses the name under which it is saved.
struct TwoNamesModel : RecordingModel {
  explicit TwoNamesModel(std::map<std::string, std::string> tied = {}) : tied(std::move(tied)) {
    table = register_module("input", torch::nn::Embedding(4, 3));
    output = register_module("output", torch::nn::Linear(3, 4));
    output->weight = output->register_parameter("again", table->weight);
    register_module("second_name", table.ptr());
  }
  std::map<std::string, std::string> tied_parameters() const override { return tied; }
  std::map<std::string, std::string> tied;
  torch::nn::Embedding table{nullptr};
  torch::nn::Linear output{nullptr};
};

// One name is a name that transformers' oldest files use for a different parameter, and one name is
// the end of another name.
struct OldNamesModel : RecordingModel {
  struct Layer : torch::nn::Module {
    explicit Layer(const char* name) { value = register_parameter(name, at::zeros({2})); }
    at::Tensor value;
  };
  OldNamesModel() {
    gamma = register_module("LayerNorm", std::make_shared<Layer>("gamma"))->value;
    inner = register_module("encoder", std::make_shared<torch::nn::Module>())
                ->register_module("last", std::make_shared<Layer>("weight"))
                ->value;
    outer = register_module("last", std::make_shared<Layer>("weight"))->value;
  }
  at::Tensor gamma, inner, outer;
};

std::vector<std::string> keys_of(const TensorDict& tensors) {
  std::vector<std::string> out;
  for (const auto& [name, tensor] : tensors) out.push_back(name);
  return out;
}

using Keys = std::vector<std::string>;

BertConfig config_with_labels(std::int64_t labels) {
  return {.vocab_size = 20,
          .hidden_size = 8,
          .num_hidden_layers = 1,
          .num_attention_heads = 2,
          .intermediate_size = 8,
          .hidden_dropout_prob = 0.2,
          .attention_probs_dropout_prob = 0.3,
          .max_position_embeddings = 8,
          .num_labels = labels};
}

void save_bert(const std::filesystem::path& folder, const BertConfig& config) {
  BertForSequenceClassification model(config);
  model.initialize();
  model.save_pretrained(folder);
}

nlohmann::json config_of(const std::filesystem::path& folder, const ModelOptions& options) {
  return nlohmann::json::parse(load_model(folder.string(), options).model->config_json());
}

}  // namespace

TEST_CASE("models: buffers of integers and booleans are saved and loaded in their own type") {
  const TemporaryDirectory folder;
  NormsModel model;
  model.initialize();
  for (int step = 0; step < 5; ++step) model.batch->forward(at::randn({4, 3}));
  CHECK(model.batch->num_batches_tracked.item<std::int64_t>() == 5);
  model.save_pretrained(folder.path());
  CHECK((load_weights(folder.path()).at("batch.num_batches_tracked").scalar_type() == at::kLong));

  NormsModel again;
  const LoadReport report = again.load_weights(load_weights(folder.path()), "file");
  CHECK(report.missing.empty());
  CHECK(report.unexpected.empty());
  CHECK(again.initialized.empty());
  CHECK(again.batch->num_batches_tracked.item<std::int64_t>() == 5);
  CHECK((again.batch->num_batches_tracked.scalar_type() == at::kLong));
  CHECK(at::equal(again.batch->running_mean, model.batch->running_mean));
  CHECK(keys_of(again.state_dict()) == keys_of(model.state_dict()));

  TensorDict wrong = load_weights(folder.path());
  wrong["batch.num_batches_tracked"] = at::full({}, 5.0);
  CHECK(code_of([&] { again.load_weights(wrong, "file"); }) == "models.dtype");
  wrong = load_weights(folder.path());
  wrong["batch.weight"] = at::ones({3}, at::kLong);
  CHECK(code_of([&] { again.load_weights(wrong, "file"); }) == "models.dtype");
  // An older file without these buffers leaves them unchanged.
  wrong.erase("batch.num_batches_tracked");
  wrong["batch.weight"] = at::ones({3}).to(at::kHalf);
  CHECK(again.load_weights(wrong, "file").missing == Keys{"batch.num_batches_tracked"});
  CHECK(again.batch->num_batches_tracked.item<std::int64_t>() == 5);
  CHECK(at::equal(again.batch->weight, at::ones({3})));
}

TEST_CASE("models: a tensor with several names is saved once and loads under any of them") {
  const TemporaryDirectory folder;
  for (const auto& [says, saved] :
       {std::pair{std::map<std::string, std::string>{}, "input.weight"},
        std::pair{std::map<std::string, std::string>{{"input.weight", "output.again"}},
                  "output.again"},
        std::pair{std::map<std::string, std::string>{{"second_name.weight", "input.weight"},
                                                     {"output.again", "second_name.weight"}},
                  "input.weight"}}) {
    TwoNamesModel model(says);
    model.initialize();
    {
      const torch::NoGradGuard no_grad;
      model.table->weight.copy_(at::arange(12).view({4, 3}));
    }
    const Keys expected = std::string(saved) == "input.weight"
                              ? Keys{"input.weight", "output.bias", "output.weight"}
                              : Keys{"output.again", "output.bias", "output.weight"};
    CHECK(keys_of(model.state_dict()) == expected);
    model.save_pretrained(folder.path());
    for (const char* name : {"input.weight", "second_name.weight", "output.again"}) {
      CAPTURE(name);
      TensorDict file = load_weights(folder.path());
      const at::Tensor table = file.at(saved).clone();
      file.erase(saved);
      file[name] = table;
      TwoNamesModel again(says);
      const LoadReport report = again.load_weights(file, "file");
      CHECK(report.missing.empty());
      CHECK(report.unexpected.empty());
      CHECK(again.initialized.empty());
      CHECK(at::equal(again.table->weight, table));
      CHECK(again.output->weight.is_same(again.table->weight));
    }
  }
  // A tensor whose name is tied only by declaration stays separate.
  TwoNamesModel separate(std::map<std::string, std::string>{{"output.bias", "input.weight"}});
  CHECK(separate.state_dict().count("output.bias") == 1);
}

TEST_CASE("models: a file's own names come before derived names") {
  OldNamesModel model;
  const LoadReport report = model.load_weights({{"LayerNorm.gamma", at::full({2}, 1.0)},
                                                {"encoder.last.weight", at::full({2}, 2.0)},
                                                {"last.weight", at::full({2}, 3.0)}},
                                               "file");
  CHECK(report.missing.empty());
  CHECK(report.unexpected.empty());
  CHECK(model.gamma[0].item<float>() == 1);
  CHECK(model.inner[0].item<float>() == 2);
  CHECK(model.outer[0].item<float>() == 3);
}

TEST_CASE("models: a head for other labels is an error, or becomes a new head on request") {
  const TemporaryDirectory folder;
  save_bert(folder.path(), config_with_labels(3));
  const std::string what = folder.path().string();
  try {
    load_model(what, {.num_labels = 5});
    FAIL("expected an error");
  } catch (const Error& error) {
    CHECK(error.code() == "models.shape");
    CHECK(std::string(error.what()).find("ignore_mismatched_sizes") != std::string::npos);
  }
  const LoadedModel fresh = load_model(what, {.num_labels = 5, .ignore_mismatched_sizes = true});
  CHECK(fresh.report.missing.empty());
  CHECK(fresh.report.mismatched.size() == 2);
  CHECK(fresh.report.mismatched.at(1).name == "classifier.weight");
  CHECK(fresh.report.mismatched.at(1).in_file == std::vector<std::int64_t>{3, 8});
  CHECK(fresh.report.mismatched.at(1).in_model == std::vector<std::int64_t>{5, 8});
  const TensorDict weights = fresh.model->state_dict(), file = load_weights(folder.path());
  CHECK(at::equal(weights.at("classifier.bias"), at::zeros({5})));
  CHECK(weights.at("classifier.weight").std().item<double>() == doctest::Approx(0.02).epsilon(0.5));
  for (const auto& [name, tensor] : file) {
    if (name.find("classifier") == std::string::npos) CHECK(at::equal(weights.at(name), tensor));
  }
  // No shape differs, so no tensor is reported.
  CHECK(load_model(what, {.ignore_mismatched_sizes = true}).report.mismatched.empty());
}

TEST_CASE("models: a name stands for a folder in the Hugging Face cache") {
  const TemporaryDirectory cache;
  const std::filesystem::path model = cache.path() / "models--org--name";
  const std::string commit(40, 'a');
  make_directories(model / "refs");
  write_file_atomically(model / "refs/main", commit);
  save_bert(model / "snapshots" / commit, config_with_labels(3));
  ::setenv("HF_HUB_CACHE", cache.path().c_str(), 1);
  const LoadedModel loaded = load_model("org/name", {});
  CHECK_FALSE(loaded.random);
  CHECK(loaded.report.missing.empty());
  CHECK(loaded.model->num_labels() == 3);
  CHECK(configured_labels("org/name").count == 3);
  CHECK(vocab_size_of("org/name@" + commit) == loaded.model->vocab_size());
  CHECK(code_of([] { load_model("org/other", {}); }) == "models.not-cached");
  // The messages for missing files name the command that fetches them.
  const auto hint = [](auto call) {
    try {
      call();
    } catch (const Error& error) {
      return error.hint();
    }
    return std::string();
  };
  CHECK(hint([] { BertTokenizer::from_pretrained("org/name"); }) ==
        "fetch the missing files: hf download org/name");
  std::filesystem::remove(model / "snapshots" / commit / "model.safetensors");
  CHECK(hint([] { load_model("org/name", {}); }) == "fetch the weights: hf download org/name");
  std::filesystem::remove(model / "snapshots" / commit / "config.json");
  CHECK(hint([] { load_model("org/name", {}); }) ==
        "fetch the missing files: hf download org/name");
  ::unsetenv("HF_HUB_CACHE");
}

TEST_CASE("models: each dropout option sets its own rate") {
  const TemporaryDirectory folder;
  save_bert(folder.path(), config_with_labels(2));
  const auto rates = [&](const ModelOptions& options) {
    const nlohmann::json config = config_of(folder.path(), options);
    return nlohmann::json{config.at("hidden_dropout_prob"),
                          config.at("attention_probs_dropout_prob"),
                          config.at("classifier_dropout")};
  };
  CHECK(rates({}) == nlohmann::json{0.2, 0.3, nullptr});
  CHECK(rates({.hidden_dropout = 0.0}) == nlohmann::json{0.0, 0.3, nullptr});
  CHECK(rates({.attention_dropout = 0.5}) == nlohmann::json{0.2, 0.5, nullptr});
  CHECK(rates({.classifier_dropout = 0.0}) == nlohmann::json{0.2, 0.3, 0.0});
  BertConfig own = config_with_labels(2);
  own.classifier_dropout = 0.4;
  save_bert(folder.path(), own);
  CHECK(rates({.hidden_dropout = 0.1}) == nlohmann::json{0.1, 0.3, 0.4});
}

TEST_CASE("models: a configuration has the number of labels, and their names if there are any") {
  const TemporaryDirectory folder;
  const auto labels = [&](const BertConfig& config) {
    save_bert(folder.path(), config);
    return configured_labels(folder.path().string());
  };
  CHECK(labels(config_with_labels(2)).count == 2);
  CHECK(labels(config_with_labels(2)).names.empty());
  CHECK(labels(config_with_labels(3)).names == Keys{"LABEL_0", "LABEL_1", "LABEL_2"});
  BertConfig named = config_with_labels(11);
  named.problem_type = "single_label_classification";
  named.id2label = {{2, "two"}, {10, "ten"}};
  const ConfiguredLabels found = labels(named);
  CHECK(found.names.at(2) == "two");
  CHECK(found.names.at(10) == "ten");
  CHECK(found.names.at(9) == "LABEL_9");
  CHECK(found.problem_type == "single_label_classification");
}

namespace {

BertConfig small_bert() {
  return {.vocab_size = 40,
          .hidden_size = 16,
          .num_hidden_layers = 2,
          .num_attention_heads = 2,
          .intermediate_size = 24,
          .hidden_dropout_prob = 0,
          .attention_probs_dropout_prob = 0,
          .max_position_embeddings = 12};
}

// A batch of 3 rows; `mask` marks the tokens that count.
TensorDict padded_batch(const at::Tensor& mask) {
  torch::manual_seed(2);
  return {{"input_ids", at::randint(1, 40, {3, 9})},
          {"token_type_ids", at::randint(0, 2, {3, 9})},
          {"attention_mask", mask}};
}

at::Tensor right_padding() {
  at::Tensor mask = at::zeros({3, 9}, at::kLong);
  mask[0].narrow(0, 0, 4).fill_(1);
  mask[1].fill_(1);
  mask[2].narrow(0, 0, 6).fill_(1);
  return mask;
}

}  // namespace

TEST_CASE("bert: a batch without its padding gives the same pooler output and gradients") {
  at::Tensor holes = right_padding(), left = at::ones({3, 9}, at::kLong);
  holes[1].narrow(0, 3, 2).zero_();
  left[2].narrow(0, 0, 3).zero_();
  for (const at::Tensor& mask : {right_padding(), holes, left, at::ones({3, 9}, at::kLong)}) {
    for (const bool positions : {false, true}) {
      torch::manual_seed(5);
      BertModel model(small_bert());
      model.initialize();
      TensorDict batch = padded_batch(mask);
      if (positions) batch["position_ids"] = at::arange(11, 2, -1, at::kLong).unsqueeze(0);
      const auto gradients = [&](const at::Tensor& pooled) {
        const at::Tensor weights = at::linspace(-1, 1, pooled.numel()).view_as(pooled);
        return torch::autograd::grad({(pooled * weights).sum()}, model.parameters());
      };
      const at::Tensor packed = model.forward_pooled(batch).pooler_output,
                       whole = model.forward(batch).pooler_output;
      CHECK(at::allclose(packed, whole, 1e-5, 1e-6));
      const auto got = gradients(packed), expected = gradients(whole);
      for (std::size_t i = 0; i < got.size(); ++i) {
        CAPTURE(i);
        CHECK(at::allclose(got[i], expected[i], 1e-4, 1e-6));
      }
    }
  }
}

TEST_CASE("bert: the error for an id outside its table has its position, also with padding") {
  BertForSequenceClassification model(small_bert());
  model.initialize();
  TensorDict batch = padded_batch(right_padding());
  batch["input_ids"][2][5] = 40;
  try {
    model.forward(batch);
    FAIL("it was taken");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find("row 2 position 5") != std::string::npos);
  }
}

TEST_CASE("bert: total_flos counts a tied weight once") {
  BertForMaskedLM model(small_bert());
  double multiplied = 0;
  for (const auto& item : model.named_parameters()) {
    const bool is_table = item.key().find("_embeddings.") != std::string::npos;
    multiplied += is_table ? 0 : static_cast<double>(item.value().numel());
  }
  CHECK(model.floating_point_ops({{"input_ids", at::zeros({2, 3}, at::kLong)}}).value() ==
        6 * 6 * multiplied);
}

}  // namespace models_pretrained_model_test
