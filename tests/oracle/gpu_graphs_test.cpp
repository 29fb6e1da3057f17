// Runs whose steps are replayed from a graph get exactly the weights of runs without graphs, for
// models of each family. On a GPU (tested::device()) these are CUDA graphs, and on the CPU they are
// the graphs of unit/device/operator_graphs.h. The test is in this folder because the kit for GPUs
// contains the program oracle_tests. It needs CUBLAS_WORKSPACE_CONFIG=:4096:8. Text models run only
// on a GPU: on the CPU their embeddings and attention compute on the host between operators, which
// the recorder does not see.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device.h"
#include "hasten/accelerator.h"
#include "hasten/models/gpt2.h"
#include "hasten/models/llama.h"
#include "hasten/models/lora.h"
#include "hasten/models/vit.h"
#include "hasten/optim/adamw.h"
#include "unit/device/operator_graphs.h"
#include "unit/trainer/tiny.h"

namespace oracle_gpu_graphs_test {

using namespace hasten;
using namespace hasten::operator_graphs;
using namespace hasten::tiny_runs;

namespace {

constexpr std::int64_t kSteps = 24;

// Makes the CPU a device with graphs if the test does not run on a GPU.
class Graphs {
 public:
  Graphs() {
    if (tested::device().is_cpu()) replacement_.emplace(device_);
  }
  // Returns the number of graphs recorded on the CPU, or nothing on a GPU.
  std::optional<std::int64_t> recordings() const {
    return replacement_ ? std::make_optional(device_.counts.recordings) : std::nullopt;
  }

 private:
  const GraphDevice device_;
  std::optional<DeviceReplacement> replacement_;
};

bool has_gpu() {
  if (!tested::device().is_cpu()) return true;
  MESSAGE("needs a GPU");
  return false;
}

TrainingArguments arguments(const Folder& folder) {
  TrainingArguments args = short_run(folder.path, 4);
  args.use_cpu = tested::device().is_cpu();
  args.full_determinism = true;
  args.max_steps = kSteps;
  args.log_level = LogLevel::debug;
  args.weight_decay = 0.1;
  args.learning_rate = 1e-3;
  args.bf16 = !tested::device().is_cpu();
  return args;
}

ColumnDataset texts(bool has_labels_of_tokens) {
  const ColumnDataset made = rows(96);
  TensorDict columns = made.columns();
  if (has_labels_of_tokens) columns["labels"] = columns.at("input_ids").clone();
  return ColumnDataset(std::move(columns));
}

ColumnDataset images() {
  torch::manual_seed(3);
  return ColumnDataset(
      {{"pixel_values", at::randn({96, 3, 16, 16})}, {"labels", at::randint(2, {96})}});
}

struct Result {
  std::vector<double> losses;
  std::vector<at::Tensor> weights;
  std::string lines;
};

template <class Model>
Result train(const std::shared_ptr<Model>& model, TrainingArguments args, ColumnDataset data,
             std::optional<bool> cuda_graph) {
  args.cuda_graph = cuda_graph;
  Result out;
  Trainer trainer(model, args,
                  {.train_dataset = TrainerDataset(std::move(data)),
                   .log_sink = [&](std::string_view line) { out.lines += str(line, "\n"); }});
  trainer.train();
  out.losses = logged(trainer);
  for (const at::Tensor& each : model->parameters()) out.weights.push_back(each.detach().cpu());
  return out;
}

void check_equal(const Result& a, const Result& b) {
  REQUIRE(a.losses.size() == kSteps);
  CHECK(a.losses == b.losses);
  REQUIRE(a.weights.size() == b.weights.size());
  for (std::size_t i = 0; i < a.weights.size(); ++i) CHECK(at::equal(a.weights[i], b.weights[i]));
}

// `make` returns a new model with the same initial weights on each call.
template <class Make>
void check_graphs(const Make& make, const ColumnDataset& data) {
  const Folder folder;
  const Graphs graphs;
  const TrainingArguments args = arguments(folder);
  const Result plain = train(make(), args, data, false);
  const Result automatic = train(make(), args, data, std::nullopt);
  check_equal(automatic, plain);
  INFO(automatic.lines);
  CHECK(plain.lines.find("cuda_graph") == std::string::npos);
  CHECK(automatic.lines.find("cuda_graph: one call starts the kernels") != std::string::npos);
  if (graphs.recordings()) CHECK(graphs.recordings() == 1);
}

template <class Model, class Config>
auto maker(const Config& config, bool has_lora = false) {
  return [=] {
    torch::manual_seed(7);
    const auto model = std::make_shared<Model>(config);
    model->initialize();
    if (has_lora) add_lora(*model, {.r = 4});
    return std::shared_ptr<PreTrainedModel>(model);
  };
}

GPT2Config gpt2() {
  return {.vocab_size = 60, .n_positions = 16, .n_embd = 32, .n_layer = 2, .n_head = 2};
}

LlamaConfig llama() {
  LlamaConfig config;
  config.vocab_size = 60;
  config.hidden_size = 32;
  config.intermediate_size = 48;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.max_position_embeddings = 16;
  return config;
}

ViTConfig vit() {
  ViTConfig config;
  config.hidden_size = 32;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.intermediate_size = 48;
  config.hidden_dropout_prob = 0.1;
  config.image_size = {16, 16};
  config.patch_size = {8, 8};
  return config;
}

}  // namespace

TEST_CASE("gpu graphs: BERT trains as without graphs") {
  if (!has_gpu()) return;
  check_graphs(maker<BertForSequenceClassification>(tiny()), texts(false));
}

TEST_CASE("gpu graphs: GPT-2 trains as without graphs, with and without adapters") {
  if (!has_gpu()) return;
  check_graphs(maker<GPT2LMHeadModel>(gpt2()), texts(true));
  check_graphs(maker<GPT2LMHeadModel>(gpt2(), /*has_lora=*/true), texts(true));
}

TEST_CASE("gpu graphs: Llama trains as without graphs") {
  if (!has_gpu()) return;
  check_graphs(maker<LlamaForCausalLM>(llama()), texts(true));
}

TEST_CASE("gpu graphs: ViT trains as without graphs") {
  check_graphs(maker<ViTForImageClassification>(vit()), images());
}

namespace {

// Returns texts of many lengths.
ColumnDataset varied_texts(bool has_labels_of_tokens) {
  TensorDict columns = texts(has_labels_of_tokens).columns();
  const at::Tensor ids = columns.at("input_ids");
  const at::Tensor lengths = at::arange(ids.size(0)).mul(5).remainder(ids.size(1) - 1).add(2);
  columns["attention_mask"] = at::arange(ids.size(1)).lt(lengths.unsqueeze(1)).to(at::kLong);
  if (has_labels_of_tokens) columns["labels"].masked_fill_(columns["attention_mask"].eq(0), -100);
  return ColumnDataset(std::move(columns));
}

// A graph of packed rows computes further tokens, so sums are in another order.
template <class Make>
void check_packed_graphs(const Make& make, const ColumnDataset& data, bool bf16) {
  const Folder folder;
  TrainingArguments args = arguments(folder);
  args.bf16 = bf16;
  args.padding_free = true;
  const Result plain = train(make(), args, data, false), graphs = train(make(), args, data, true);
  INFO(graphs.lines);
  CHECK(plain.lines.find("cuda_graph") == std::string::npos);
  CHECK(graphs.lines.find("cuda_graph: one call starts the kernels") != std::string::npos);
  REQUIRE(graphs.losses.size() == kSteps);
  for (std::size_t i = 0; i < kSteps; ++i)
    CHECK(graphs.losses[i] == doctest::Approx(plain.losses[i]).epsilon(bf16 ? 2e-2 : 2e-4));
}

}  // namespace

TEST_CASE("gpu graphs: packed rows train as without graphs") {
  if (!has_gpu()) return;
  GPT2Config decoder = gpt2();
  decoder.resid_pdrop = decoder.embd_pdrop = decoder.attn_pdrop = 0;
  for (const bool bf16 : {false, true}) {
    CAPTURE(bf16);
    check_packed_graphs(maker<BertForSequenceClassification>(tiny(0)), varied_texts(false), bf16);
    check_packed_graphs(maker<GPT2LMHeadModel>(decoder), varied_texts(true), bf16);
    check_packed_graphs(maker<LlamaForCausalLM>(llama()), varied_texts(true), bf16);
  }
}

TEST_CASE("gpu graphs: eager attention of packed rows is not recorded") {
  if (!has_gpu()) return;
  const Folder folder;
  TrainingArguments args = arguments(folder);
  args.padding_free = true;
  BertConfig config = tiny(0);
  config.attn_implementation = AttentionImplementation::eager;
  const auto make = maker<BertForSequenceClassification>(config);
  const Result plain = train(make(), args, varied_texts(false), false),
               graphs = train(make(), args, varied_texts(false), true);
  INFO(graphs.lines);
  CHECK(graphs.lines.find("cuda_graph: the kernels of this run are started one by one") !=
        std::string::npos);
  for (std::size_t i = 0; i < kSteps; ++i)
    CHECK(graphs.losses[i] == doctest::Approx(plain.losses[i]).epsilon(2e-2));
}

TEST_CASE("gpu graphs: evaluations and checkpoints between the steps change nothing") {
  const Folder folder;
  const Graphs graphs;
  const auto make = maker<ViTForImageClassification>(vit());
  TrainingArguments args = arguments(folder);
  args.save_strategy = SaveStrategy::steps;
  args.save_steps = 12;
  args.eval_strategy = IntervalStrategy::steps;
  args.eval_steps = 5;
  const auto run = [&](std::optional<bool> cuda_graph, const std::string& from) {
    args.cuda_graph = cuda_graph;
    args.output_dir = (folder.path / (cuda_graph     ? "plain"
                                      : from.empty() ? "new"
                                                     : "continued"))
                          .string();
    args.resume_from_checkpoint = from;
    const auto model = make();
    Trainer trainer(model, args,
                    {.train_dataset = TrainerDataset(images()),
                     .eval_dataset = TrainerDataset(images()),
                     .log_sink = [](std::string_view) {}});
    trainer.train();
    Result out{.losses = logged(trainer)};
    for (const at::Tensor& each : model->parameters()) out.weights.push_back(each.detach().cpu());
    return out;
  };
  const Result plain = run(false, "");
  check_equal(run(std::nullopt, ""), plain);
  const std::string checkpoint = (folder.path / "new" / "checkpoint-12").string();
  check_equal(run(std::nullopt, checkpoint), plain);
}

namespace {

// Trains with a TrainingStep of an ordinary loop.
Result train_with_steps(bool cuda_graph) {
  const bool is_cpu = tested::device().is_cpu();
  const bool was_deterministic = at::globalContext().deterministicAlgorithms();
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  const auto model = maker<ViTForImageClassification>(vit())();
  AdamW adamw(model->parameters(), AdamWOptions(1e-3));
  Accelerator accelerator({.mixed_precision = is_cpu ? Precision::no : Precision::bf16,
                           .cpu = is_cpu,
                           .cuda_graph = cuda_graph});
  auto [prepared, optimizer] = accelerator.prepare(model, adamw);
  TrainingStep step = accelerator.training_step(prepared, optimizer, {.max_grad_norm = 1.0});
  const TensorDict columns = images().columns();
  torch::manual_seed(9);
  Result out;
  for (std::int64_t i = 0; i < kSteps; ++i) {
    TensorDict batch;
    for (const auto& [name, column] : columns) batch[name] = column.narrow(0, 4 * i, 4);
    out.losses.push_back(step(accelerator.to_device(batch)).loss);
  }
  CHECK(step.used_graph() == cuda_graph);
  INFO(step.missing_graph_reason());
  for (const at::Tensor& each : model->parameters()) out.weights.push_back(each.detach().cpu());
  at::globalContext().setDeterministicAlgorithms(was_deterministic, /*warn_only=*/false);
  return out;
}

}  // namespace

TEST_CASE("gpu graphs: a training step of a program's loop trains as without graphs") {
  const Graphs graphs;
  check_equal(train_with_steps(true), train_with_steps(false));
}

namespace {

// Reads a number from the device in each step, so that no graph can replay the step.
struct Reader : torch::nn::Module {
  Reader() { register_module("head", head); }
  ModelOutput forward(const TensorDict& batch) {
    const at::Tensor logits = head(batch.at("x"));
    const at::Tensor loss = at::cross_entropy_loss(logits, batch.at("labels"));
    return {.loss = loss * (1 + std::abs(loss.item<double>())), .logits = logits};
  }
  torch::nn::Linear head{8, 2};
};

}  // namespace

TEST_CASE("gpu graphs: a step that reads a number is not recorded, and the run goes on without") {
  const Folder folder;
  const Graphs graphs;
  torch::manual_seed(4);
  const ColumnDataset data({{"x", at::randn({96, 8})}, {"labels", at::randint(2, {96})}});
  const auto make = [] {
    torch::manual_seed(5);
    return std::make_shared<Reader>();
  };
  const Result plain = train(make(), arguments(folder), data, false);
  const Result asked = train(make(), arguments(folder), data, true);
  check_equal(asked, plain);
  INFO(asked.lines);
  CHECK(asked.lines.find("a step that cannot be recorded") != std::string::npos);
}

TEST_CASE("gpu graphs: a recorder records again after a recording that has failed") {
  const Graphs graphs;
  const at::Tensor y = at::ones({4}, tested::device());
  const GraphSupport support = device_of(y.device()).graphs(y.device().index());
  REQUIRE_MESSAGE(support.recorder, support.missing);
  const auto check_next = [&](float before) {
    CHECK_FALSE(
        support.recorder->record([&] { (void)y.mul(2).sum().item<float>(); }).failure.empty());
    GraphRecorder::Recording made = support.recorder->record([&] { y.add_(1); });
    REQUIRE_MESSAGE(made.graph, made.failure);
    made.graph->replay();
    CHECK(at::equal(y.cpu(), at::full({4}, before + 1)));
    return std::move(made.graph);
  };
  const auto first = check_next(1);
  check_next(2);  // while the pool of the first graph is in use
  first->replay();
  CHECK(at::equal(y.cpu(), at::full({4}, 4.0f)));
}

TEST_CASE("gpu graphs: a recorder records again after its graphs are gone") {
  const Graphs graphs;
  const at::Tensor y = at::ones({4}, tested::device());
  const GraphSupport support = device_of(y.device()).graphs(y.device().index());
  REQUIRE_MESSAGE(support.recorder, support.missing);
  at::Tensor kept;  // as in a module that keeps a tensor of its first step
  for (const double number : {2.0, 3.0}) {
    CAPTURE(number);
    const GraphRecorder::Recording made = support.recorder->record([&] { kept = y * number; });
    REQUIRE_MESSAGE(made.graph, made.failure);
    made.graph->replay();
    CHECK(at::equal(kept.cpu(), at::full({4}, number)));
  }
}

}  // namespace oracle_gpu_graphs_test
