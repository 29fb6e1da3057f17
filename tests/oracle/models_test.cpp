// Compares outputs, losses and gradients with transformers' BERT classes
// (tests/oracle/generate_models.py). The first case runs on tested::device(); the cases about
// MiniLM and about files run only on the CPU.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "device.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/formats/safetensors.h"
#include "hasten/formats/weights.h"
#include "hasten/models/bert.h"
#include "oracle/minilm.h"
#include "oracle/near.h"

namespace oracle_models_test {

using namespace hasten;
using hasten::oracle::check_near;

namespace {

const std::filesystem::path kData = tested::folder() / "oracle/data";

struct Case {
  std::string name;
  Task task;
};

std::shared_ptr<PreTrainedModel> load(const Case& which) {
  const auto folder = kData / "models" / which.name;
  if (which.name == "bert_relu_no_pooler") {
    auto model = std::make_shared<BertModel>(BertConfig::from_file(folder / "config.json"),
                                             /*add_pooling_layer=*/false);
    model->load_weights(load_weights(folder), folder.string());
    return model;
  }
  LoadedModel loaded = load_model(folder.string(), {.task = which.task});
  CHECK(loaded.report.missing.empty());
  CHECK(loaded.report.unexpected.empty());
  return loaded.model;
}

}  // namespace

TEST_CASE("models: outputs, losses and gradients equal those of transformers' classes") {
  for (const Case& which :
       {Case{"bert", Task::base}, Case{"bert_gelu_new", Task::base},
        Case{"bert_relu_no_pooler", Task::base}, Case{"bert_sharded", Task::base},
        Case{"sequence_single_label", Task::text_classification},
        Case{"sequence_regression", Task::text_classification},
        Case{"sequence_regression_2", Task::text_classification},
        Case{"sequence_multi_label", Task::text_classification},
        Case{"token_classification", Task::token_classification},
        Case{"masked_lm", Task::masked_lm}}) {
    CAPTURE(which.name);
    const auto model = load(which);
    model->to(tested::device());
    model->train();  // dropout is 0 in these configurations
    const TensorDict expected =
        load_safetensors(kData / "models" / which.name / "expected.safetensors");
    TensorDict batch;
    for (const auto& [name, tensor] : expected) {
      if (starts_with(name, "input.")) batch[name.substr(6)] = tensor.to(tested::device());
    }
    const ModelOutput out = model->forward(batch);
    at::Tensor loss = out.loss;
    const std::map<std::string, at::Tensor> outputs = {{"last_hidden_state", out.last_hidden_state},
                                                       {"pooler_output", out.pooler_output},
                                                       {"logits", out.logits},
                                                       {"loss", out.loss}};
    for (const auto& [name, tensor] : expected) {
      if (starts_with(name, "output.") && outputs.count(name.substr(7))) {
        const at::Tensor& output = outputs.at(name.substr(7));
        // A text classifier that removes padding has no hidden states for the padding.
        if (name == "output.last_hidden_state" && !output.defined() &&
            which.task == Task::text_classification)
          continue;
        // A bare model has no loss; the file uses the weighted sum of its outputs.
        if (name == "output.loss" && !output.defined()) continue;
        check_near(name, output, tensor, 2e-6);
      }
      if (starts_with(name, "weight.")) {
        const at::Tensor part = (outputs.at(name.substr(7)) * tensor.to(tested::device())).sum();
        loss = loss.defined() ? loss + part : part;
      }
    }
    loss.backward();
    std::size_t compared = 0;
    for (const auto& item : model->named_parameters()) {
      const auto found = expected.find("grad." + item.key());
      if (found == expected.end()) continue;
      check_near(item.key(), item.value().grad(), found->second, 5e-6);
      ++compared;
    }
    const auto gradients = std::count_if(expected.begin(), expected.end(), [](const auto& item) {
      return starts_with(item.first, "grad.");
    });
    CHECK(compared == static_cast<std::size_t>(gradients));
  }
}

TEST_CASE("models: MiniLM's hidden states of tokens differ by at most 3e-5 from transformers'") {
  const auto folder = minilm_folder();
  if (!folder) return;
  const TensorDict expected = load_safetensors(kData / "minilm.safetensors");
  const LoadedModel loaded = load_model(folder->string(), {.task = Task::base});
  loaded.model->eval();
  const torch::NoGradGuard no_grad;
  const ModelOutput out = loaded.model->forward(
      {{"input_ids", expected.at("input_ids")}, {"attention_mask", expected.at("attention_mask")}});
  const at::Tensor attended = expected.at("attention_mask").unsqueeze(-1).to(at::kFloat);
  const at::Tensor difference = (out.last_hidden_state - expected.at("last_hidden_state")).abs();
  CHECK((difference * attended).max().item<double>() <= 3e-5);
  // Nothing reads the outputs at padding positions. There, transformers differs by 7e-5 from the
  // model in double, and LibTorch's kernels for a CPU without AVX2 differ by 1.1e-4 from
  // transformers.
  CHECK(difference.max().item<double>() <= 2e-4);
}

TEST_CASE("models: weights and names of save_pretrained are read back equal, whole and in shards") {
  const std::filesystem::path source = kData / "models/masked_lm";
  const LoadedModel loaded = load_model(source.string(), {.task = Task::masked_lm});
  const TemporaryDirectory folder;
  const std::filesystem::path out = folder.path() / "model";
  for (const std::int64_t shard : {std::int64_t{1} << 40, std::int64_t{20'000}}) {
    loaded.model->save_pretrained(out, shard);
    const LoadedModel again = load_model(out.string(), {.task = Task::masked_lm});
    CHECK(again.report.missing.empty());
    for (const auto& [name, tensor] : loaded.model->state_dict())
      CHECK(at::equal(tensor, again.model->state_dict().at(name)));
    std::filesystem::remove_all(out);
  }
  std::vector<std::string> transformers_names, names;
  for (const auto& [name, tensor] : load_safetensors(source / "model.safetensors"))
    transformers_names.push_back(name);
  for (const auto& [name, tensor] : loaded.model->state_dict()) names.push_back(name);
  CHECK(names == transformers_names);
}

}  // namespace oracle_models_test
