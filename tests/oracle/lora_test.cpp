// Compares adapters with the adapters of PEFT (tests/oracle/generate_lora.py), on tested::device().
#include "hasten/models/lora.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>
#include <set>

#include "device.h"
#include "hasten/base/files.h"
#include "hasten/formats/safetensors.h"
#include "hasten/models/pretrained_model.h"
#include "hasten/optim/adamw.h"

namespace oracle_lora_test {

using namespace hasten;
namespace fs = std::filesystem;

namespace {

const fs::path kData = tested::folder() / "oracle/data";

bool is_decoder(const std::string& name) { return name == "gpt2" || name == "llama"; }

// Returns the rows of a step. For a decoder, the ids fit its vocabulary and are also the labels.
TensorDict batch_of(const std::string& name, const TensorDict& batches, std::int64_t step) {
  TensorDict batch;
  for (const auto& [column, tensor] : batches) batch[column] = tensor[step].to(tested::device());
  if (!is_decoder(name)) return batch;
  batch["input_ids"] = batch["input_ids"] % 30;
  batch["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"].eq(0), -100);
  return batch;
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.detach().cpu() - b).abs().max().item<double>();
}

std::shared_ptr<PreTrainedModel> base_model(const std::string& name) {
  if (is_decoder(name)) {
    auto model = load_model((kData / "decoders" / name).string(), {.task = Task::causal_lm}).model;
    // Computes the loss as in training: in parts and without padding.
    CHECK(model->set_loss_only(true));
    return model;
  }
  return load_model((kData / "base" / "config.json").string(),
                    {.weights = kData / "base" / "init.safetensors"})
      .model;
}

// Returns the tensors of the file without the copies that PEFT's model holds of the modules that it
// trains whole.
TensorDict adapter_in(const fs::path& file) {
  TensorDict tensors = load_safetensors(file);
  std::erase_if(tensors, [](const auto& item) {
    return item.first.find(".modules_to_save.") != std::string::npos ||
           item.first.find(".original_module.") != std::string::npos;
  });
  return tensors;
}

}  // namespace

TEST_CASE("lora: logits and ten steps of training equal PEFT's, and so do the files") {
  const TensorDict batches = load_safetensors(kData / "base" / "batches.safetensors");
  for (const char* name : {"query_value", "all_linear", "pattern", "bias_all", "gpt2", "llama"}) {
    CAPTURE(name);
    const fs::path folder = kData / "lora" / name;
    const TensorDict expected = load_safetensors(folder / "expected.safetensors");
    const auto model = base_model(name);
    load_lora(*model, folder);
    model->to(tested::device());
    model->eval();
    CHECK(difference(model->forward(batch_of(name, batches, 0)).logits, expected.at("logits")) <=
          tested::limit(1e-5));

    model->train();  // dropout is 0 in these configurations
    std::vector<at::Tensor> trained;
    for (const at::Tensor& parameter : model->parameters())
      if (parameter.requires_grad()) trained.push_back(parameter);
    AdamW optimizer(trained, torch::optim::AdamWOptions(3e-2).eps(1e-3).weight_decay(1e-2));
    for (std::int64_t step = 0; step < 10; ++step) {
      const at::Tensor loss = model->forward(batch_of(name, batches, step)).loss;
      CHECK(difference(loss, expected.at("losses")[step]) <= tested::limit(3e-5));
      loss.backward();
      optimizer.step();
      optimizer.zero_grad();
    }
    const TemporaryDirectory saved("hasten-lora");
    save_lora(*model, saved.path());
    const TensorDict own = load_safetensors(saved.path() / "adapter_model.safetensors"),
                     of_peft = adapter_in(folder / "trained.safetensors");
    REQUIRE(own.size() == of_peft.size());
    for (const auto& [tensor, values] : own) {
      CAPTURE(tensor);
      CHECK(difference(values, of_peft.at(tensor)) <= tested::limit(3e-5));
    }
    const auto config_of = [](const fs::path& path) {
      return nlohmann::json::parse(read_file(path / "adapter_config.json"));
    };
    const nlohmann::json ours = config_of(saved.path()), theirs = config_of(folder);
    for (const char* key : {"peft_type", "task_type", "r", "lora_alpha", "lora_dropout", "bias",
                            "use_rslora", "fan_in_fan_out", "init_lora_weights"}) {
      CAPTURE(key);
      CHECK(ours.at(key) == theirs.at(key));
    }
    const auto names_of = [](const nlohmann::json& names) {
      return names.is_array() ? std::set<std::string>(names.begin(), names.end())
                              : std::set<std::string>{names.get<std::string>()};
    };
    if (std::string(name) != "pattern")
      CHECK(names_of(ours.at("target_modules")) == names_of(theirs.at("target_modules")));
  }
}

}  // namespace oracle_lora_test
