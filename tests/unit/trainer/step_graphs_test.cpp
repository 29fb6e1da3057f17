// Runs with and without cuda_graph have the same numbers, bit for bit. The device repeats operators
// on the CPU with the recorded tensors and numbers (unit/device/operator_graphs.h). A number that a
// step passes by value would therefore be outdated in the next step.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "anatomy/dry_gpu.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/anatomy/report.h"
#include "hasten/models/hooks.h"
#include "hasten/models/training_traits.h"
#include "hasten/models/vit.h"
#include "hasten/ops/ops.h"
#include "hasten/trainer/estimate.h"
#include "hasten/trainer/trainer.h"
#include "unit/device/operator_graphs.h"
#include "unit/trainer/tiny.h"

namespace trainer_step_graphs_test {

using namespace hasten;
using namespace hasten::operator_graphs;
using namespace hasten::tiny_runs;

namespace {

constexpr std::int64_t kClasses = 5;

// Tags each token of a row with a class, with hasten's dropout in two forms.
struct Tagger : torch::nn::Module, TrainingTraits {
  explicit Tagger(double dropout) : dropout(dropout) {
    register_module("table", table);
    register_module("inner", inner);
    register_module("norm", norm);
    register_module("head", head);
  }
  ModelOutput forward(const TensorDict& batch) {
    const at::Tensor x = ops::dropout(table(batch.at("input_ids")), dropout, is_training());
    const at::Tensor z =
        ops::dropout_add_norm(at::linear(x, inner->weight), inner->bias, x, norm->weight,
                              norm->bias, 1e-5, dropout, is_training());
    const at::Tensor logits = head(z);
    return {
        .loss = at::cross_entropy_loss(logits.view({-1, kClasses}), batch.at("labels").view({-1})),
        .logits = logits};
  }

  // A token does not depend on the others, so it does not matter in which row it is.
  bool supports_packed_batches() const override { return true; }

  double dropout;
  torch::nn::Embedding table{30, 8};
  torch::nn::Linear inner{8, 8}, head{8, kClasses};
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({8})};
};

}  // namespace
}  // namespace trainer_step_graphs_test

namespace hasten {
namespace {

// Counts as a model of hasten, whose names begin with this namespace.
struct OwnTagger : trainer_step_graphs_test::Tagger {
  using Tagger::Tagger;
};

}  // namespace
}  // namespace hasten

namespace trainer_step_graphs_test {
namespace {

// The rows of a dataset. The lengths of its batches alternate, and the number of labels differs
// between rows.
struct Texts {
  std::vector<TensorDict> rows;
  std::int64_t size() const { return std::ssize(rows); }
  TensorDict get(std::int64_t index) const { return rows[static_cast<std::size_t>(index)]; }
};
Texts texts(std::int64_t count, std::int64_t batch, const std::vector<std::int64_t>& lengths) {
  torch::manual_seed(11);
  Texts all;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto length = lengths[static_cast<std::size_t>(i / batch) % lengths.size()];
    const at::Tensor ids = at::randint(30, {length});
    at::Tensor labels = ids.remainder(kClasses);
    labels.narrow(0, 0, i % 3).fill_(-100);
    all.rows.push_back(
        {{"input_ids", ids}, {"attention_mask", at::ones_like(ids)}, {"labels", labels}});
  }
  return all;
}

struct Result {
  std::vector<double> losses, norms, rates;
  TensorDict weights;
  std::vector<std::string> warnings;
  Counts counts;
};

struct Setup {
  TrainingArguments args;
  double dropout = 0.2;
  std::vector<std::int64_t> lengths = {16};
  std::vector<std::shared_ptr<TrainerCallback>> callbacks = {};
  std::int64_t rows = 96;
  std::int64_t unused_memory = 600;  // of the GraphDevice
};

// True for a log line about graphs, except the line that reports that a graph is used.
bool is_about_graphs(std::string_view line) {
  return line.find("cuda_graph") != std::string_view::npos &&
         line.find("one call starts") == std::string_view::npos;
}

TrainerDataset data_of(const Setup& setup) {
  return TrainerDataset(texts(setup.rows, setup.args.per_device_train_batch_size, setup.lengths));
}

template <class Model>
Result run_model(const Setup& setup, std::optional<bool> with_graphs,
                 const std::shared_ptr<Model>& model, TrainerDataset data) {
  GraphDevice device;
  device.unused = setup.unused_memory;
  const DeviceReplacement replacement(device);
  TrainingArguments args = setup.args;
  args.cuda_graph = with_graphs;
  Result out;
  Trainer trainer(model, args,
                  {.train_dataset = std::move(data),
                   .callbacks = setup.callbacks,
                   .log_sink = [&](std::string_view line) { out.warnings.emplace_back(line); },
                   .on_anatomy = [](const anatomy::Report&) {}});
  trainer.train();
  std::erase_if(out.warnings, [](const std::string& each) { return !is_about_graphs(each); });
  out.losses = logged(trainer);
  out.norms = logged(trainer, "grad_norm");
  out.rates = logged(trainer, "learning_rate");
  for (const auto& each : model->named_parameters())
    out.weights[each.key()] = each.value().detach().clone();
  out.counts = device.counts;
  return out;
}

Result run(const Setup& setup, std::optional<bool> with_graphs) {
  torch::manual_seed(5);
  return run_model(setup, with_graphs, std::make_shared<Tagger>(setup.dropout), data_of(setup));
}

// Trains one of hasten's models on rows of images.
Result run_own(const Setup& setup, std::optional<bool> with_graphs) {
  ViTConfig config;
  config.hidden_size = 16;
  config.num_hidden_layers = 1;
  config.num_attention_heads = 2;
  config.intermediate_size = 24;
  config.hidden_dropout_prob = setup.dropout;
  config.image_size = {8, 8};
  config.patch_size = {4, 4};
  torch::manual_seed(7);
  const auto model = std::make_shared<ViTForImageClassification>(config);
  model->initialize();
  const ColumnDataset images({{"pixel_values", at::randn({setup.rows, 3, 8, 8})},
                              {"labels", at::randint(2, {setup.rows})}});
  return run_model<PreTrainedModel>(setup, with_graphs, model, TrainerDataset(images));
}

// Trains one of hasten's models on rows of texts.
Result run_texts(const Setup& setup, std::optional<bool> with_graphs) {
  BertConfig config = tiny(setup.dropout);
  config.num_labels = kClasses;
  torch::manual_seed(7);
  const auto model = std::make_shared<BertForTokenClassification>(config);
  model->initialize();
  return run_model<PreTrainedModel>(setup, with_graphs, model, data_of(setup));
}

TrainingArguments steps_of(const Folder& folder, std::int64_t steps) {
  TrainingArguments args = short_run(folder.path, 4);
  args.learning_rate = 0.02;
  args.weight_decay = 0.1;
  args.max_steps = steps;
  args.train_sampling_strategy = SamplingStrategy::sequential;
  return args;
}

void check_equal(const Result& a, const Result& b) {
  REQUIRE_FALSE(a.losses.empty());
  CHECK(a.losses == b.losses);
  CHECK(a.norms == b.norms);
  CHECK(a.rates == b.rates);
  for (const auto& [name, tensor] : a.weights) {
    CAPTURE(name);
    CHECK(at::equal(tensor, b.weights.at(name)));
  }
}

// Checks that most steps were replays and that nothing was reported.
void check_replays(const Result& result, std::int64_t recordings, std::int64_t replays) {
  CHECK(result.warnings.empty());
  CHECK(result.counts.recordings == recordings);
  CHECK(result.counts.replays == replays);
}

}  // namespace

TEST_CASE("step graphs: losses, norms, rates and weights are those of a run without graphs") {
  const Folder folder;
  for (const double dropout : {0.0, 0.2}) {
    for (const double max_norm : {0.0, 0.05}) {
      CAPTURE(dropout);
      CAPTURE(max_norm);
      Setup setup{.args = steps_of(folder, 20), .dropout = dropout};
      setup.args.max_grad_norm = max_norm;
      const Result plain = run(setup, false), graphs = run(setup, true);
      check_equal(graphs, plain);
      CHECK(plain.counts.recordings == 0);
      check_replays(graphs, 1, 17);  // all steps after the first three
    }
  }
}

TEST_CASE("step graphs: full and short windows of several micro-batches are replayed") {
  const Folder folder;
  Setup setup{.args = steps_of(folder, 24), .rows = 28};  // windows of 3, 3 and 1
  setup.args.gradient_accumulation_steps = 3;
  const Result plain = run(setup, false), graphs = run(setup, true);
  check_equal(graphs, plain);
  check_replays(graphs, 2, 21);
}

TEST_CASE("step graphs: losses may be read only for logs") {
  const Folder folder;
  Setup setup{.args = steps_of(folder, 23)};
  setup.args.logging_steps = 5;
  const Result plain = run(setup, false), graphs = run(setup, true);
  check_equal(graphs, plain);
  CHECK(graphs.losses.size() == 4);
  check_replays(graphs, 1, 20);
}

TEST_CASE("step graphs: an anatomy records the steps before the first graph") {
  const Folder folder;
  Setup setup{.args = steps_of(folder, 20)};
  setup.args.anatomy = "text";
  const Result plain = run(setup, false), graphs = run(setup, true);
  check_equal(graphs, plain);
  check_replays(graphs, 1, 14);
}

TEST_CASE("step graphs: each of eight shapes has a graph, and further shapes run without one") {
  const Folder folder;
  Setup two{.args = steps_of(folder, 20), .lengths = {16, 32}};
  check_equal(run(two, true), run(two, false));
  check_replays(run(two, true), 2, 17);

  Setup nine{.args = steps_of(folder, 40),
             .lengths = {16, 32, 48, 64, 96, 128, 192, 256, 384, 512},
             .rows = 400};
  const Result graphs = run(nine, true);
  check_equal(graphs, run(nine, false));
  CHECK(graphs.counts.recordings >= 8);
  REQUIRE(graphs.warnings.size() == 1);
  CHECK(graphs.warnings[0].find("more than 8 shapes") != std::string::npos);
}

namespace {

// Returns the memory that a simulated GPU reserves in a run whose steps have rows of these lengths
// in turn.
std::int64_t reserved_with(const std::vector<std::int64_t>& lengths) {
  const Folder folder;
  const DryRun dry(find_gpu("cuda:h200"));
  TrainingArguments args = steps_of(folder, 40);
  args.use_cpu = false;
  args.bf16 = true;
  args.cuda_graph = true;
  const BertConfig config{.vocab_size = 60,
                          .hidden_size = 256,
                          .num_hidden_layers = 2,
                          .num_attention_heads = 4,
                          .intermediate_size = 1024,
                          .num_labels = kClasses};
  const auto model = std::make_shared<BertForTokenClassification>(config);
  model->initialize();
  std::int64_t graphs = 0;
  Trainer trainer(std::shared_ptr<PreTrainedModel>(model), args,
                  {.train_dataset = TrainerDataset(texts(160, 4, lengths)),
                   .log_sink = [&](std::string_view line) {
                     graphs += line.find("one call starts") != std::string_view::npos;
                   }});
  trainer.train();
  CHECK(graphs >= std::ssize(lengths));
  return anatomy::DryGpu::active()->memory()->peak_reserved();
}

}  // namespace

TEST_CASE("step graphs: the graphs of several shapes need little more memory than the largest") {
  const std::int64_t largest = reserved_with({512}),
                     ascending = reserved_with({192, 256, 384, 512}),
                     descending = reserved_with({512, 384, 256, 192});
  CHECK(largest > std::int64_t{100} << 20);
  CHECK(static_cast<double>(ascending) < 1.15 * static_cast<double>(largest));
  CHECK(static_cast<double>(descending) < 1.15 * static_cast<double>(largest));
}

TEST_CASE("step graphs: rows of many lengths are padded to a few, with the same losses") {
  const Folder folder;
  Setup setup{.args = steps_of(folder, 30), .dropout = 0, .lengths = {9, 12, 31, 16, 20, 25}};
  const Result plain = run(setup, false), graphs = run(setup, true);
  check_replays(graphs, 3, 27);  // the graph of 16 tokens is recorded again after that of 32
  REQUIRE(graphs.losses.size() == plain.losses.size());
  for (std::size_t i = 0; i < plain.losses.size(); ++i)
    CHECK(graphs.losses[i] == doctest::Approx(plain.losses[i]).epsilon(1e-4));
}

TEST_CASE("step graphs: batches without padding get few numbers of tokens, and the same losses") {
  const Folder folder;
  Setup setup{.args = steps_of(folder, 40), .dropout = 0, .lengths = {90, 117, 31, 16, 33, 91}};
  setup.args.padding_free = true;
  setup.rows = 160;
  const auto own = [&](std::optional<bool> with_graphs) {
    torch::manual_seed(5);
    return run_model(setup, with_graphs, std::make_shared<OwnTagger>(0.0), data_of(setup));
  };
  const Result plain = own(false), automatic = own(std::nullopt), graphs = own(true);
  check_equal(automatic, plain);
  CHECK(automatic.counts.recordings == 0);
  CHECK(graphs.warnings.empty());
  CHECK(graphs.counts.recordings >= 2);
  CHECK(graphs.counts.replays >= 15);
  REQUIRE(graphs.losses.size() == plain.losses.size());
  for (std::size_t i = 0; i < plain.losses.size(); ++i)
    CHECK(graphs.losses[i] == doctest::Approx(plain.losses[i]).epsilon(1e-4));
  // A model of the program might split the rows on the host, which a graph would repeat.
  const Result other = run(setup, true);
  CHECK(other.counts.recordings == 0);
  REQUIRE(other.warnings.size() == 1);
  CHECK(other.warnings[0].find("may take from host memory") != std::string::npos);
}

namespace {

using Image = std::pair<at::Tensor, at::Tensor>;

// Rows of a type other than TensorDict.
struct Images {
  std::int64_t size() const { return 96; }
  Image get(std::int64_t index) const {
    const at::Tensor x = at::sin(at::arange(6) + 3 * index);
    return {x, x.slice(0, 0, kClasses).argmax()};
  }
};

struct Classifier : torch::nn::Module {
  Classifier() { register_module("head", head); }
  ModelOutput forward(const Image& batch) {
    const at::Tensor logits = head(batch.first);
    return {.loss = at::cross_entropy_loss(logits, batch.second), .logits = logits};
  }
  torch::nn::Linear head{6, kClasses};
};

}  // namespace

TEST_CASE("step graphs: batches may be pairs of tensors") {
  const Folder folder;
  const Setup setup{.args = steps_of(folder, 20)};
  const auto run_pairs = [&](bool with_graphs) {
    torch::manual_seed(5);
    return run_model(setup, with_graphs, std::make_shared<Classifier>(), TrainerDataset(Images{}));
  };
  const Result plain = run_pairs(false), graphs = run_pairs(true);
  check_equal(graphs, plain);
  check_replays(graphs, 1, 17);
}

TEST_CASE("step graphs: a checkpoint continues with and without graphs") {
  const Folder folder;
  Setup setup{.args = steps_of(folder, 16)};
  setup.args.save_strategy = SaveStrategy::steps;
  setup.args.save_steps = 10;
  setup.args.gradient_accumulation_steps = 2;
  setup.args.output_dir = (folder.path / "plain").string();
  const Result plain = run(setup, false);
  setup.args.output_dir = (folder.path / "graphs").string();
  check_equal(run(setup, true), plain);
  for (const char* const from : {"plain", "graphs"}) {
    for (const bool with_graphs : {false, true}) {
      CAPTURE(from);
      CAPTURE(with_graphs);
      Setup rest = setup;
      rest.args.save_strategy = SaveStrategy::no;
      rest.args.output_dir = (folder.path / "rest").string();
      rest.args.resume_from_checkpoint = (folder.path / from / "checkpoint-10").string();
      const Result continued = run(rest, with_graphs);
      for (const auto& [name, tensor] : plain.weights)
        CHECK(at::equal(tensor, continued.weights.at(name)));
    }
  }
}

namespace {

// Reads neither gradients nor losses.
struct QuietCallback : TrainerCallback {
  bool reads_gradients() const override { return false; }
  bool reads_losses() const override { return false; }
};

// Changes the model at the beginning of a step.
struct Changer : QuietCallback {
  using Change = void (*)(torch::nn::Module& model);
  explicit Changer(Change change) : change(change) {}
  void on_step_begin(const TrainerEvent& event, TrainerControl&) override {
    hooks += "b";
    if (event.state.global_step == 12) change(event.model);
  }
  void on_substep_end(const TrainerEvent&, TrainerControl&) override { hooks += "s"; }
  void on_pre_optimizer_step(const TrainerEvent&, TrainerControl&) override { hooks += "p"; }
  void on_optimizer_step(const TrainerEvent&, TrainerControl&) override { hooks += "o"; }
  void on_step_end(const TrainerEvent&, TrainerControl&, double) override { hooks += "e"; }
  Change change;
  std::string hooks;
};

}  // namespace

TEST_CASE("step graphs: callbacks are called in each phase of a step, and may change the model") {
  const Folder folder;
  const std::vector<Changer::Change> changes = {
      [](torch::nn::Module&) {},
      [](torch::nn::Module& model) {
        const torch::NoGradGuard no_grad;
        model.parameters()[0].mul_(1.5);
      },
      // The graph still uses the old address.
      [](torch::nn::Module& model) {
        const at::Tensor parameter = model.parameters()[0];
        parameter.set_data(parameter.detach() * 1.5);
      },
  };
  for (const Changer::Change change : changes) {
    const auto plain = std::make_shared<Changer>(change),
               graphs = std::make_shared<Changer>(change);
    Setup setup{.args = steps_of(folder, 20), .callbacks = {plain}};
    setup.args.gradient_accumulation_steps = 2;
    const Result expected = run(setup, false);
    setup.callbacks = {graphs};
    const Result got = run(setup, true);
    check_equal(got, expected);
    // A graph that no longer fits is recorded again one step later.
    const bool is_recorded_again = change == changes[2];
    check_replays(got, is_recorded_again ? 2 : 1, is_recorded_again ? 16 : 17);
    CHECK(graphs->hooks == plain->hooks);
  }
}

namespace {

struct EarlyStop : QuietCallback {
  void on_epoch_begin(const TrainerEvent&, TrainerControl& control) override {
    control.should_training_stop = true;
  }
};

}  // namespace

TEST_CASE("step graphs: a stop at the beginning of an epoch waits for the end of a step") {
  const Folder folder;
  Setup setup{.args = steps_of(folder, 20), .callbacks = {std::make_shared<EarlyStop>()}};
  setup.args.gradient_accumulation_steps = 4;
  const Result plain = run(setup, false), graphs = run(setup, true);
  CHECK(plain.losses.size() == 1);
  check_equal(graphs, plain);
}

namespace {

// Changes the model at the end of step 12, so that the graph is no longer valid for the next step.
struct LaterChanger : QuietCallback {
  using Change = void (*)(torch::nn::Module& model);
  explicit LaterChanger(Change change) : change(change) {}
  void on_step_end(const TrainerEvent& event, TrainerControl&, double) override {
    if (event.state.global_step == 12) change(event.model);
  }
  Change change;
};

}  // namespace

TEST_CASE("step graphs: a step whose model has changed is recorded again") {
  const Folder folder;
  const std::vector<LaterChanger::Change> changes = {
      [](torch::nn::Module& model) {
        const at::Tensor parameter = model.parameters()[0];
        parameter.set_data(parameter.detach().clone());
      },
      [](torch::nn::Module& model) { model.parameters()[1].set_requires_grad(false); },
      [](torch::nn::Module& model) { model.children()[2]->eval(); }};
  for (const LaterChanger::Change change : changes) {
    Setup setup{.args = steps_of(folder, 20),
                .callbacks = {std::make_shared<LaterChanger>(change)}};
    const Result got = run(setup, true);
    check_equal(got, run(setup, false));
    check_replays(got, 2, 16);  // the first three steps and the one after the change have no graph
  }
}

namespace {

struct LossReader : TrainerCallback {
  bool reads_gradients() const override { return false; }
};
struct GradientReader : TrainerCallback {
  bool reads_losses() const override { return false; }
};
struct OwnTrainer : Trainer {
  using Trainer::Trainer;
};
// Reads a number on the host in each step.
struct HostReadingTagger : Tagger {
  using Tagger::Tagger;
  ModelOutput forward(const TensorDict& batch) {
    ModelOutput out = Tagger::forward(batch);
    return {.loss = out.loss * (1 + 0.1 * std::abs(out.loss.item<double>())), .logits = out.logits};
  }
};
// Draws noise on the host in each step.
struct HostNoiseTagger : Tagger {
  using Tagger::Tagger;
  ModelOutput forward(const TensorDict& batch) {
    ModelOutput out = Tagger::forward(batch);
    return {.loss = out.loss * at::rand({}), .logits = out.logits};
  }
};

// Returns the only report of a run that asks for graphs but cannot use them.
template <class Owner = Trainer, class Model = Tagger>
std::string report_of(TrainerParts parts, const TrainingArguments& given) {
  std::vector<std::string> lines;
  TrainingArguments args = given;
  args.cuda_graph = true;
  parts.train_dataset = TrainerDataset(texts(96, 4, {16}));
  parts.log_sink = [&](std::string_view line) {
    if (is_about_graphs(line)) lines.emplace_back(line);
  };
  Owner trainer(std::make_shared<Model>(0.2), args, parts);
  trainer.train();
  CHECK(logged(trainer).size() == 8);
  REQUIRE(lines.size() == 1);
  return lines[0];
}

bool mentions(const std::string& report, const std::string& reason) {
  INFO(report);
  return report.find("started one by one, because of " + reason) != std::string::npos;
}

}  // namespace

TEST_CASE("step graphs: a run that cannot use graphs logs the reason once and continues") {
  const Folder folder;
  const TrainingArguments args = steps_of(folder, 8);
  CHECK(mentions(report_of({}, args), "a device (cpu) that has no graphs"));
  const GraphDevice device;
  const DeviceReplacement replacement(device);
  CHECK(mentions(report_of({.callbacks = {std::make_shared<LossReader>()}}, args),
                 "the callback trainer_step_graphs_test::(anonymous namespace)::LossReader, which "
                 "reads the loss of each step"));
  CHECK(report_of({.callbacks = {std::make_shared<GradientReader>()}}, args)
            .find("GradientReader, which reads gradients") != std::string::npos);
  CHECK(mentions(
      report_of({.compute_loss = [](Tagger& model,
                                    const TensorDict& batch) { return model.forward(batch); }},
                args),
      "TrainerParts::compute_loss"));
  CHECK(mentions(report_of<OwnTrainer>({}, args), "a class that derives from Trainer"));
  CHECK(mentions(report_of<Trainer, HostReadingTagger>({}, args),
                 "a step that cannot be recorded: a number is read"));
  CHECK(report_of<Trainer, HostNoiseTagger>({}, args).find(
            "random numbers that are drawn on the host") != std::string::npos);
  CHECK(device.counts.recordings == 0);
}

TEST_CASE("step graphs: a step that cannot be recorded runs without a graph") {
  const Folder folder;
  const GraphDevice device;
  const DeviceReplacement replacement(device);
  const auto weights_of = [&](bool with_graphs) {
    TrainingArguments args = steps_of(folder, 8);
    args.cuda_graph = with_graphs;
    torch::manual_seed(5);
    const auto model = std::make_shared<HostReadingTagger>(0.2);
    Trainer trainer(
        model, args,
        {.train_dataset = TrainerDataset(texts(96, 4, {16})), .log_sink = [](std::string_view) {}});
    trainer.train();
    return model->parameters();
  };
  const auto with = weights_of(true), without = weights_of(false);
  for (std::size_t i = 0; i < with.size(); ++i) CHECK(at::equal(with[i], without[i]));
}

TEST_CASE("step graphs: if cuda_graph is unset, models of hasten use graphs for repeated shapes") {
  const Folder folder;
  for (const double dropout : {0.0, 0.1}) {
    CAPTURE(dropout);
    Setup setup{.args = steps_of(folder, 40), .dropout = dropout};
    const Result plain = run_own(setup, false), automatic = run_own(setup, std::nullopt);
    check_equal(automatic, plain);
    CHECK(plain.counts.recordings == 0);
    check_replays(automatic, 1, 32);  // all steps after the first eight
  }
  // The last batch of an epoch has two rows.
  Setup uneven{.args = steps_of(folder, 60), .rows = 50};
  check_equal(run_own(uneven, std::nullopt), run_own(uneven, false));
  check_replays(run_own(uneven, std::nullopt), 1, 48);
}

TEST_CASE("step graphs: if cuda_graph is unset, rows of alternating lengths use no graph") {
  const Folder folder;
  const Setup setup{.args = steps_of(folder, 30), .lengths = {9, 12, 5, 16}};
  const Result automatic = run_texts(setup, std::nullopt);
  check_equal(automatic, run_texts(setup, false));
  check_replays(automatic, 0, 0);
}

TEST_CASE("step graphs: if cuda_graph is unset, user classes and full devices use no graphs") {
  const Folder folder;
  Setup setup{.args = steps_of(folder, 20)};
  check_replays(run(setup, std::nullopt), 0, 0);
  setup.unused_memory = 399;
  check_replays(run_own(setup, std::nullopt), 0, 0);
  setup.unused_memory = 400;
  check_replays(run_own(setup, std::nullopt), 1, 12);
  setup.args.optim = OptimizerName::adafactor;
  check_replays(run_own(setup, std::nullopt), 0, 0);
}

TEST_CASE("step graphs: a hook runs in each step, so there are no graphs") {
  const Folder folder;
  const GraphDevice device;
  const DeviceReplacement replacement(device);
  for (const bool of_parameter : {true, false}) {
    TrainingArguments args = steps_of(folder, 8);
    args.cuda_graph = true;
    const auto model = std::make_shared<Tagger>(0.2);
    std::int64_t calls = 0;
    const HookHandle hook =
        of_parameter ? watch_gradients(*model->inner,
                                       [&](const std::string&, const at::Tensor&) { ++calls; })
                     : register_forward_pre_hook(
                           *model, [&](torch::nn::Module&, std::vector<at::Tensor>&) { ++calls; });
    std::string report;
    Trainer trainer(model, args,
                    {.train_dataset = TrainerDataset(texts(96, 4, {16})),
                     .log_sink = [&](std::string_view line) { report += line; }});
    trainer.train();
    if (of_parameter) CHECK(calls == 16);  // in 8 steps, for the weight and the bias
    CHECK(mentions(report,
                   of_parameter ? "a hook of the parameter inner.weight" : "a hook of the module"));
  }
}

namespace {

// Registers a hook at the end of step 12.
struct LaterHook : QuietCallback {
  void on_step_end(const TrainerEvent& event, TrainerControl&, double) override {
    if (event.state.global_step != 12) return;
    handle.emplace(watch_gradients(
        event.model, [this](const std::string& name, const at::Tensor&) { ++calls[name]; }));
  }
  std::optional<HookHandle> handle;
  std::map<std::string, int> calls;
};

}  // namespace

TEST_CASE("step graphs: a hook that is added later disables graphs, and runs in each step") {
  const Folder folder;
  const auto later = std::make_shared<LaterHook>();
  const Result got = run({.args = steps_of(folder, 20), .callbacks = {later}}, true);
  check_equal(got, run({.args = steps_of(folder, 20)}, false));
  REQUIRE(got.warnings.size() == 1);
  CHECK(mentions(got.warnings[0], "a hook of the parameter"));
  CHECK(later->calls.at("inner.weight") == 8);
}

TEST_CASE("step graphs: an estimate of them leaves out the host time and includes their memory") {
  EstimateOptions options{.model = "bert-base",
                          .length = 128,
                          .arguments = {.per_device_train_batch_size = 1, .bf16 = true},
                          .device = "cuda:h200"};
  options.arguments.cuda_graph = false;
  const anatomy::Report plain = estimate(options);
  options.arguments.cuda_graph = true;
  const anatomy::Report graphs = estimate(options);
  options.arguments.cuda_graph.reset();
  const anatomy::Report automatic = estimate(options);
  const auto before = anatomy::expected_step_time(plain),
             after = anatomy::expected_step_time(graphs);
  REQUIRE(before.has_value());
  REQUIRE(after.has_value());
  CHECK(before->seconds > 1.1 * before->kernels);
  CHECK(after->host == 0);
  CHECK(after->seconds == after->kernels);
  // A kernel of a graph starts sooner.
  CHECK(after->kernels < before->kernels);
  CHECK(after->kernels > 0.7 * before->kernels);
  CHECK(std::abs(graphs.memory.peak - plain.memory.peak) <= 2048);
  CHECK(anatomy::expected_step_time(automatic)->host == 0);
  // The graph's memory is allocated in addition to the memory of the first steps.
  REQUIRE(plain.memory.gpu.has_value());
  for (const anatomy::Report* const each : {&graphs, &automatic}) {
    CHECK(each->memory.gpu->reserved > plain.memory.gpu->reserved);
    CHECK(each->memory.gpu->reserved < 1.15 * plain.memory.gpu->reserved);
    CHECK(each->notes.size() == plain.notes.size() + 1);
  }
  // The step needs more than half of the memory of this GPU, so there is no room for a graph.
  options.device = "cuda:t4";
  options.arguments.per_device_train_batch_size = 160;
  CHECK(anatomy::expected_step_time(estimate(options))->host > 0);
}

}  // namespace trainer_step_graphs_test
