// Compares GPT-2 and Llama with transformers' classes: outputs, losses, gradients, files, and runs
// of the Hugging Face Trainer (tests/oracle/generate_decoders.py). Computations run on
// tested::device(); the cases about files run only on the CPU.
#include "device.h"
#include "hasten/base/files.h"
#include "hasten/formats/safetensors.h"
#include "hasten/models/gpt2.h"
#include "hasten/models/llama.h"
#include "oracle/near.h"
#include "oracle/trainer_cases.h"

namespace oracle_decoders_test {

using namespace hasten;
using namespace hasten::oracle;

namespace {

const fs::path kDecoders = kData / "decoders";

struct Case {
  std::string name;
  Task task;
};

const std::vector<Case>& decoder_cases() {
  static const std::vector<Case> all = {{"gpt2", Task::causal_lm},
                                        {"gpt2_base", Task::base},
                                        {"gpt2_untied", Task::causal_lm},
                                        {"gpt2_unscaled", Task::causal_lm},
                                        {"gpt2_classifier", Task::text_classification},
                                        {"llama", Task::causal_lm},
                                        {"llama_base", Task::base},
                                        {"llama3", Task::causal_lm},
                                        {"llama_biases", Task::causal_lm},
                                        {"llama_mqa", Task::causal_lm},
                                        {"llama_classifier", Task::text_classification}};
  return all;
}

std::shared_ptr<PreTrainedModel> load(const std::string& name, Task task,
                                      AttentionImplementation attention) {
  LoadedModel loaded =
      load_model((kDecoders / name).string(), {.task = task, .attn_implementation = attention});
  CHECK(loaded.report.missing.empty());
  CHECK(loaded.report.unexpected.empty());
  return loaded.model;
}

// Sets the outputs of padding to zero. Nothing reads them, and a padding token that attends to no
// other token has no defined output.
at::Tensor zero_padding(const at::Tensor& output, const at::Tensor& mask) {
  return output.dim() < 3 ? output : output * mask.unsqueeze(-1);
}

void check_outputs(const Case& which, AttentionImplementation attention) {
  CAPTURE(which.name);
  const auto model = load(which.name, which.task, attention);
  model->to(tested::device());
  model->train();  // dropout is 0 in these configurations
  const TensorDict expected = load_safetensors(kDecoders / which.name / "expected.safetensors");
  TensorDict batch;
  for (const auto& [name, tensor] : expected) {
    if (name.rfind("input.", 0) == 0) batch[name.substr(6)] = tensor.to(tested::device());
  }
  const ModelOutput out = model->forward(batch);
  const at::Tensor& mask = expected.at("input.attention_mask");
  const auto compare = [&](const char* name, const at::Tensor& output) {
    const at::Tensor& recorded = expected.at(name);
    check_near(name, zero_padding(output.detach().cpu(), mask), zero_padding(recorded, mask), 2e-6);
  };
  compare("output.last_hidden_state", out.last_hidden_state);
  at::Tensor loss = out.loss;
  if (which.task == Task::base) {
    loss = (out.last_hidden_state * expected.at("weight.last_hidden_state").to(tested::device()))
               .sum();
  } else {
    compare("output.logits", out.logits);
  }
  // The terms of a base model's weighted sum cancel each other, so its tolerance is larger.
  check_near("loss", loss, expected.at("output.loss"), which.task == Task::base ? 2e-5 : 2e-6);
  loss.backward();
  std::size_t compared = 0;
  for (const auto& item : model->named_parameters()) {
    const auto found = expected.find("grad." + item.key());
    REQUIRE(found != expected.end());
    check_near(item.key(), item.value().grad(), found->second, 5e-6);
    ++compared;
  }
  const auto gradients = std::count_if(expected.begin(), expected.end(), [](const auto& item) {
    return item.first.rfind("grad.", 0) == 0;
  });
  CHECK(compared == static_cast<std::size_t>(gradients));
}

// The gradients of the keys' biases are 0 except for rounding, and the size of AdamW's steps does
// not depend on the size of the gradient. The keys' third of GPT-2's c_attn.bias is therefore not
// compared.
void check_final(const PreTrainedModel& model, const fs::path& file, double tolerance) {
  const TensorDict expected = load_safetensors(file);
  for (const auto& [name, tensor] : model.state_dict()) {
    CAPTURE(name);
    at::Tensor difference = (tensor.cpu() - expected.at(name)).abs();
    if (name.ends_with("c_attn.bias")) difference.chunk(3)[1].zero_();
    CHECK(difference.max().item<double>() <= tolerance);
  }
}

}  // namespace

TEST_CASE("decoders: outputs, losses and gradients equal those of transformers' classes") {
  for (const Case& which : decoder_cases()) {
    check_outputs(which, AttentionImplementation::sdpa);
    check_outputs(which, AttentionImplementation::eager);
  }
}

TEST_CASE("decoders: a cache gives the logits of the whole text, a few tokens at a time") {
  for (const char* name : {"gpt2", "gpt2_untied", "llama", "llama3", "llama_mqa"}) {
    CAPTURE(name);
    const auto model = load(name, Task::causal_lm, AttentionImplementation::sdpa);
    model->to(tested::device());
    model->eval();
    const torch::NoGradGuard no_grad;
    torch::manual_seed(3);
    const at::Tensor ids = at::randint(5, 61, {2, 12}).to(tested::device());
    // The second row begins with three padding tokens, so its positions start after them.
    at::Tensor mask = at::ones({2, 12}, ids.options());
    mask[1].narrow(0, 0, 3).zero_();
    const at::Tensor positions = (mask.cumsum(1) - 1).clamp_min(0);
    const at::Tensor whole =
        model->forward({{"input_ids", ids}, {"attention_mask", mask}, {"position_ids", positions}})
            .logits;
    auto* const causal = dynamic_cast<CausalModel*>(model.get());
    REQUIRE(causal != nullptr);
    KeyValueCache cache(causal->cache_shape(), {.rows = 2, .capacity = 12});
    cache.set_prompt(mask.narrow(1, 0, 7));
    for (const auto& [first, count] : {std::pair{0, 7}, {7, 1}, {8, 3}, {11, 1}}) {
      CAPTURE(first);
      const at::Tensor logits = causal->next_logits(ids.narrow(1, first, count), cache);
      cache.advance(count);
      check_near("logits", logits, whole.select(1, first + count - 1).cpu(), 2e-6);
    }
  }
}

TEST_CASE("decoders: configurations and names are written as transformers writes them") {
  for (const Case& which : decoder_cases()) {
    CAPTURE(which.name);
    const fs::path source = kDecoders / which.name;
    const auto model = load(which.name, which.task, AttentionImplementation::sdpa);
    const TemporaryDirectory folder;
    model->save_pretrained(folder.path() / "model");
    json recorded = json::parse(read_file(source / "config.json")),
         written = json::parse(read_file(folder.path() / "model/config.json"));
    CHECK(written == recorded);
    std::vector<std::string> transformers_names, names;
    for (const auto& [name, tensor] : load_safetensors(source / "model.safetensors"))
      transformers_names.push_back(name);
    for (const auto& [name, tensor] : load_safetensors(folder.path() / "model/model.safetensors"))
      names.push_back(name);
    CHECK(names == transformers_names);
  }
}

TEST_CASE("decoders: a base model reads the files of a language model, and the other way round") {
  const LoadedModel base = load_model((kDecoders / "gpt2").string(), {.task = Task::base});
  CHECK(base.report.missing.empty());
  const LoadedModel head =
      load_model((kDecoders / "llama_base").string(), {.task = Task::causal_lm});
  CHECK(head.report.missing == std::vector<std::string>{"lm_head.weight"});
  CHECK(head.report.unexpected.empty());
}

TEST_CASE("decoders: training equals the Hugging Face Trainer's") {
  for (const char* name : {"gpt2", "llama3"}) {
    CAPTURE(name);
    const fs::path folder = kDecoders / name;
    const json expected = json::parse(read_file(folder / "expected.json"));
    const auto model = load(name, Task::causal_lm, AttentionImplementation::sdpa);
    TrainingArguments args =
        training_arguments_from_json(expected.at("arguments").dump(), "expected.json");
    const TemporaryDirectory out;
    args.output_dir = out.path().string();
    args.train_sampling_strategy = SamplingStrategy::sequential;
    args.save_strategy = SaveStrategy::no;
    args.use_cpu = tested::device().is_cpu();
    Trainer trainer(model, args,
                    {.train_dataset = TrainerDataset(
                         ColumnDataset(load_safetensors(folder / "rows.safetensors")))});
    const TrainOutput result = trainer.train();
    CHECK(model->parameters().front().is_cpu() == args.use_cpu);
    CHECK(result.global_step == expected.at("steps").get<std::int64_t>());
    const Tolerance tolerance{.loss = tested::limit(3e-5), .weights = tested::limit(3e-5)};
    CHECK(std::abs(result.training_loss - expected.at("train_loss").get<double>()) <=
          tolerance.loss);
    const auto& history = trainer.state().log_history;
    REQUIRE(history.size() == expected.at("log_history").size());
    for (std::size_t i = 0; i < history.size(); ++i) {
      CAPTURE(i);
      check_entry(expected.at("log_history")[i], history[i], tolerance);
    }
    check_final(*model, folder / "final.safetensors", tolerance.weights);
  }
}

}  // namespace oracle_decoders_test
