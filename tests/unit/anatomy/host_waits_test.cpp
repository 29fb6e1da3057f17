// Counts on a simulated GPU how often the host waits for the GPU in a training step.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include "anatomy/dry_gpu.h"
#include "hasten/accelerator.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/models/gpt2.h"
#include "hasten/models/llama.h"
#include "hasten/models/pack_rows.h"
#include "hasten/optim/adamw.h"
#include "hasten/optim/grad_scaler.h"
#include "hasten/trainer/estimate.h"
#include "unit/trainer/tiny.h"

namespace anatomy_host_waits_test {

using namespace hasten;
using namespace hasten::tiny_runs;
using anatomy::DryGpu;
using Waits = std::map<std::string, std::int64_t>;

namespace {

const Gpu& h100() { return find_gpu("cuda:h100-80gb"); }

// Returns the waits since `before`, without causes that did not occur.
Waits waits_since(const Waits& before) {
  Waits out;
  for (const auto& [cause, count] : DryGpu::active()->waits().by_cause()) {
    const auto found = before.find(cause);
    const std::int64_t more = count - (found == before.end() ? 0 : found->second);
    if (more > 0) out[cause] = more;
  }
  return out;
}
Waits current_waits() { return DryGpu::active()->waits().by_cause(); }

std::int64_t total(const Waits& waits) {
  std::int64_t all = 0;
  for (const auto& [cause, count] : waits) all += count;
  return all;
}
std::string text_of(const Waits& waits) {
  std::string out;
  for (const auto& [cause, count] : waits) out += str(count, " of ", cause, "; ");
  return out;
}

// Counts the waits from the end of the second step to the end of the third. The first two steps
// create states and read values that only the start of a run needs.
struct WaitCounter : TrainerCallback {
  bool reads_gradients() const override { return false; }
  bool reads_losses() const override { return false; }
  void on_step_end(const TrainerEvent& event, TrainerControl&, double) override {
    if (event.state.global_step == 2) before = current_waits();
    if (event.state.global_step == 3) of_step = waits_since(before);
  }
  Waits before, of_step;
};

TrainingArguments arguments_without_logging(const Folder& folder) {
  TrainingArguments args = short_run(folder.path);
  args.use_cpu = false;
  args.max_steps = 4;
  args.logging_strategy = IntervalStrategy::no;
  return args;
}

template <class Model = BertForSequenceClassification>
Waits waits_of_trainer(TrainingArguments args, const ColumnDataset& data,
                       const std::function<std::shared_ptr<Model>()>& make,
                       std::vector<std::shared_ptr<TrainerCallback>> callbacks = {}) {
  const DryRun dry(h100());
  const auto counted = std::make_shared<WaitCounter>();
  callbacks.push_back(counted);
  Trainer trainer(make(), args,
                  {.train_dataset = TrainerDataset(data),
                   .callbacks = callbacks,
                   .log_sink = [](std::string_view) {}});
  trainer.train();
  return counted->of_step;
}

Waits waits_of_bert(const TrainingArguments& args,
                    const std::vector<std::shared_ptr<TrainerCallback>>& callbacks = {}) {
  return waits_of_trainer<PreTrainedModel>(
      args, rows(64), [] { return new_model(); }, callbacks);
}

}  // namespace

TEST_CASE("host waits: calls that wait for the GPU are counted, and other calls are not") {
  const DryRun dry(h100());
  const at::Tensor there = at::ones({3, 4}, at::kCUDA), here = at::ones({3, 4});
  const auto counts = [](const std::function<void()>& act) {
    const Waits before = current_waits();
    act();
    return waits_since(before);
  };
  CHECK(counts([&] { (void)(there + 1).sum(); }).empty());
  CHECK(counts([&] { (void)there.sum().item<float>(); }) ==
        Waits{{"aten::_local_scalar_dense", 1}});
  CHECK(counts([&] { (void)here.sum().item<float>(); }).empty());
  CHECK(counts([&] { (void)there.cpu(); }) == Waits{{"copy from the GPU", 1}});
  CHECK(counts([&] { (void)here.to(at::kCUDA); }) == Waits{{"copy to the GPU", 1}});
  CHECK(counts([&] { (void)there.clone(); }).empty());
  CHECK(counts([&] { (void)at::equal(there, there); }) == Waits{{"aten::equal", 1}});
  const at::Tensor pinned = at::ones({3, 4}).pin_memory();
  CHECK(pinned.is_pinned());
  CHECK_FALSE(here.is_pinned());
  CHECK(counts([&] { (void)pinned.to(at::kCUDA, /*non_blocking=*/true); }).empty());
  CHECK(counts([&] { torch::cuda::synchronize(); }) == Waits{{"device", 1}});
}

TEST_CASE("host waits: a step of the Trainer waits at most once") {
  const Folder folder;
  for (const std::int64_t accumulated : {1, 3}) {
    for (const double max_norm : {0.0, 1.0}) {
      for (const char* precision : {"float", "bf16", "fp16"}) {
        CAPTURE(accumulated);
        CAPTURE(max_norm);
        CAPTURE(precision);
        TrainingArguments args = arguments_without_logging(folder);
        args.gradient_accumulation_steps = accumulated;
        args.max_grad_norm = max_norm;
        args.bf16 = std::string(precision) == "bf16";
        args.fp16 = std::string(precision) == "fp16";
        const Waits waits = waits_of_bert(args);
        INFO(text_of(waits));
        // The scale of fp16 decides on the host whether the optimizer steps.
        CHECK(total(waits) == (args.fp16 ? 1 : 0));
      }
    }
  }
}

namespace {

// Returns rows whose last tokens are padding, half of them.
ColumnDataset rows_with_padding(std::int64_t count) {
  const TensorDict whole = rows(count).columns();
  at::Tensor mask = whole.at("attention_mask").clone();
  for (std::int64_t row = 0; row < count; row += 2) mask[row].slice(0, 5).zero_();
  return ColumnDataset({{"input_ids", whole.at("input_ids")},
                        {"attention_mask", mask},
                        {"labels", whole.at("labels")}});
}

}  // namespace

TEST_CASE("host waits: a step without padding does not wait") {
  const Folder folder;
  for (const bool bf16 : {false, true}) {
    CAPTURE(bf16);
    TrainingArguments args = arguments_without_logging(folder);
    args.padding_free = true;
    args.bf16 = bf16;
    static std::map<std::string, std::int64_t> calls;
    calls.clear();
    const auto handle = at::addThreadLocalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction& function)
                                       -> std::unique_ptr<at::ObserverContext> {
          ++calls[function.name()];
          return nullptr;
        }).scopes({at::RecordScope::FUNCTION}));
    const Waits waits =
        waits_of_trainer<PreTrainedModel>(args, rows_with_padding(64), [] { return new_model(); });
    at::removeCallback(handle);
    INFO(text_of(waits));
    CHECK(total(waits) == 0);
    // The heads of the model have 8 numbers, and it has one layer.
    const std::string name = bf16 ? "aten::_flash_attention_" : "aten::_efficient_attention_";
    CHECK(calls[name + "forward"] == args.max_steps);
    CHECK(calls[name + "backward"] == args.max_steps);
  }
}

TEST_CASE("host waits: a model reads the lengths of packed rows on the host") {
  const TensorDict columns = rows_with_padding(4).columns();
  const DryRun dry(h100());
  Accelerator accelerator;
  const std::shared_ptr<PreTrainedModel> model = new_model();
  accelerator.to_device(*model);
  const TensorDict placed = accelerator.to_device(pack_rows(columns, /*shifts_labels=*/false), 4);
  CHECK(placed.at(kPackedRows).is_cuda());
  CHECK(placed.at(kPackedRowsOnHost).is_cpu());
  CHECK(placed.at("input_ids").size(1) == 2 * 5 + 2 * 12);
  const Waits before = current_waits();
  model->forward(placed).loss.backward();
  const Waits waits = waits_since(before);
  INFO(text_of(waits));
  CHECK(total(waits) == 0);
}

TEST_CASE("host waits: an estimate with padding_free has the operators for packed rows") {
  const auto estimated = [](bool padding_free) {
    return estimate({.model = "bert-base",
                     .length = 16,
                     .arguments = {.per_device_train_batch_size = 2,
                                   .bf16 = true,
                                   .padding_free = padding_free},
                     .device = "cuda:h200"});
  };
  const auto calls = [](const anatomy::Report& report, const std::string& name) {
    std::int64_t count = 0;
    for (const auto& each : report.operations) count += each.name == name ? each.count : 0;
    return count / report.steps;
  };
  const anatomy::Report padded = estimated(false), packed = estimated(true);
  CHECK(calls(padded, "aten::_flash_attention_forward") == 0);
  CHECK(calls(packed, "aten::_flash_attention_forward") == 12);
  CHECK(calls(packed, "aten::_flash_attention_backward") == 12);
  CHECK(packed.samples == padded.samples);
  CHECK(packed.tokens == padded.tokens);
  CHECK(packed.without_formula == padded.without_formula);
}

TEST_CASE("host waits: a step that is logged waits once") {
  const Folder folder;
  TrainingArguments args = arguments_without_logging(folder);
  args.logging_strategy = IntervalStrategy::steps;
  args.logging_steps = 1;
  const Waits waits = waits_of_bert(args);
  INFO(text_of(waits));
  CHECK(waits == Waits{{"copy from the GPU", 1}});  // the losses and the norm together
}

TEST_CASE("host waits: a step whose loss is used reads it once for all micro-batches") {
  const Folder folder;
  struct LossReader : TrainerCallback {
    bool reads_gradients() const override { return false; }
  };
  TrainingArguments args = arguments_without_logging(folder);
  args.gradient_accumulation_steps = 3;
  CHECK(waits_of_bert(args, {std::make_shared<LossReader>()}) == Waits{{"copy from the GPU", 1}});
  args.stop_on_nonfinite_loss = true;
  CHECK(waits_of_bert(args) == Waits{{"copy from the GPU", 1}});
}

TEST_CASE("host waits: a step of any other optimizer does not wait") {
  const Folder folder;
  for (const auto optim :
       {OptimizerName::sgd, OptimizerName::adafactor, OptimizerName::ademamix,
        OptimizerName::lion_32bit, OptimizerName::rmsprop, OptimizerName::schedule_free_adamw,
        OptimizerName::stable_adamw, OptimizerName::adamax, OptimizerName::lamb,
        OptimizerName::muon, OptimizerName::nadam, OptimizerName::radam, OptimizerName::adamw_8bit,
        OptimizerName::lion_8bit, OptimizerName::adagrad, OptimizerName::schedule_free_sgd}) {
    const std::string name(name_of(optim));
    CAPTURE(name);
    TrainingArguments args = arguments_without_logging(folder);
    args.optim = optim;
    const Waits waits = waits_of_bert(args);
    INFO(text_of(waits));
    CHECK(total(waits) == 0);
  }
}

TEST_CASE("host waits: a step with a technique does not wait") {
  const Folder folder;
  const std::map<std::string, std::function<void(TrainingArguments&)>> techniques = {
      {"step_in_backward",
       [](TrainingArguments& a) { a.step_in_backward = true, a.max_grad_norm = 0; }},
      {"activation_checkpointing", [](TrainingArguments& a) { a.activation_checkpointing = true; }},
      {"label_smoothing", [](TrainingArguments& a) { a.label_smoothing_factor = 0.1; }},
      {"neftune", [](TrainingArguments& a) { a.neftune_noise_alpha = 5; }},
  };
  for (const auto& [name, change] : techniques) {
    CAPTURE(name);
    TrainingArguments args = arguments_without_logging(folder);
    change(args);
    const Waits waits = waits_of_bert(args);
    INFO(text_of(waits));
    CHECK(total(waits) == 0);
  }
}

TEST_CASE("host waits: a step of a decoder does not wait") {
  const Folder folder;
  at::Tensor ids = at::randint(5, 60, {64, 12});
  const ColumnDataset data(
      {{"input_ids", ids}, {"attention_mask", at::ones_like(ids)}, {"labels", ids.clone()}});
  const auto check = [&](const char* name, const auto& make) {
    CAPTURE(name);
    const Waits waits =
        waits_of_trainer<PreTrainedModel>(arguments_without_logging(folder), data, make);
    INFO(text_of(waits));
    CHECK(total(waits) == 0);
  };
  check("gpt2", []() -> std::shared_ptr<PreTrainedModel> {
    auto model = std::make_shared<GPT2LMHeadModel>(
        GPT2Config{.vocab_size = 60, .n_positions = 16, .n_embd = 16, .n_layer = 2, .n_head = 2});
    model->initialize();
    return model;
  });
  check("llama", []() -> std::shared_ptr<PreTrainedModel> {
    LlamaConfig config;
    config.vocab_size = 60;
    config.hidden_size = 16;
    config.intermediate_size = 24;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 2;
    config.max_position_embeddings = 16;
    auto model = std::make_shared<LlamaForCausalLM>(config);
    model->initialize();
    return model;
  });
}

TEST_CASE("host waits: a loop with the Accelerator waits at most once a step") {
  const ColumnDataset data = rows(64);
  for (const Precision precision : {Precision::no, Precision::bf16, Precision::fp16}) {
    const DryRun dry(h100());
    Accelerator accelerator({.mixed_precision = precision});
    auto net = std::make_shared<BertForSequenceClassification>(tiny());
    auto adamw = std::make_shared<AdamW>(net->parameters(), AdamWOptions(1e-3));
    auto plain = make_loader(data, {.batch_size = 4, .pin_memory = true});
    auto [model, optimizer, loader] = accelerator.prepare(net, adamw, plain);
    Waits before, waits;
    std::int64_t step = 0;
    for (auto& batch : loader) {
      const ModelOutput output = model(batch);
      accelerator.backward(output.loss);
      accelerator.clip_grad_norm_(net->parameters(), 1.0);
      optimizer.step();
      optimizer.zero_grad();
      ++step;
      if (step == 2) before = current_waits();
      if (step == 3) waits = waits_since(before);
    }
    INFO(text_of(waits));
    CHECK(total(waits) == (precision == Precision::fp16 ? 1 : 0));
  }
}

TEST_CASE("host waits: a loop with a GradScaler waits once a step") {
  const DryRun dry(h100());
  torch::nn::Linear net(8, 4);
  net->to(at::kCUDA);
  AdamW adamw(net->parameters(), AdamWOptions(1e-3));
  GradScaler scaler;
  Waits before;
  for (int step = 0; step < 2; ++step) {
    before = current_waits();
    scaler.scale(net->forward(at::ones({2, 8}, at::kCUDA)).sum()).backward();
    scaler.unscale_(adamw);
    clip_grad_norm_(net->parameters(), 1.0);
    scaler.step(adamw);
    scaler.update();
    adamw.zero_grad();
  }
  CHECK(waits_since(before) == Waits{{"aten::_local_scalar_dense", 1}});
}

}  // namespace anatomy_host_waits_test
