// A saved state loads exactly, and a state that does not fit is refused before anything changes.
#include "hasten/checkpoint/detail/training_state.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "checkpoint/optimizer_options.h"
#include "checkpoint/random_state.h"
#include "checkpoint/run_record.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/formats/safetensors.h"
#include "hasten/optim/adamw.h"
#include "hasten/optim/metric_scheduler.h"
#include "hasten/optim/stateful_optimizer.h"
#include "unit/code_of.h"

namespace checkpoint_training_state_test {

using namespace hasten;
namespace fs = std::filesystem;

namespace {

struct Training {
  explicit Training(std::int64_t columns = 4) {
    torch::manual_seed(1);
    names = {{"bias", at::randn({columns}).requires_grad_()},
             {"weight", at::randn({3, columns}).requires_grad_()}};
  }
  std::vector<at::Tensor> parameters() const { return {names.at("bias"), names.at("weight")}; }
  void step(torch::optim::Optimizer& optimizer) const {
    optimizer.zero_grad();
    (names.at("weight").square().sum() + names.at("bias").square().sum()).backward();
    optimizer.step();
  }
  ParameterNames names;
};

const TrainingPosition kPosition{.scheduler_step = 7,
                                 .num_processes = 1,
                                 .loader = {.seed = 3, .epoch = 1, .batch = 5, .rows = 40}};

std::vector<TensorDict> single_rank_states() { return random_states(Group::single()); }

void flip_a_byte(const fs::path& file) {
  std::string bytes = read_file(file);
  bytes[3] ^= 0x55;
  std::ofstream(file, std::ios::binary) << bytes;
}

}  // namespace

TEST_CASE("training state: moments, position and randomness are restored to the bit") {
  const TemporaryDirectory folder;
  const Training first;
  AdamW adamw(first.parameters());
  for (int i = 0; i < 3; ++i) first.step(adamw);
  save_training_state(folder.path(), adamw, first.names, kPosition, single_rank_states());
  const at::Tensor drawn = at::rand({5});
  first.step(adamw);

  const Training second;
  AdamW fresh(second.parameters());
  // Both models get the same weights. The moments of `fresh` are cleared and come from the
  // checkpoint.
  for (int i = 0; i < 3; ++i) second.step(fresh);
  fresh.state().clear();
  CHECK(load_training_state(folder.path(), fresh, second.names));
  const TrainingPosition position = load_training_position(folder.path());
  CHECK(position.optimizer == "AdamW");
  CHECK(position.num_processes == 1);
  CHECK(position.scheduler_step == 7);
  CHECK(position.loader == kPosition.loader);
  CHECK(at::equal(at::rand({5}), drawn));
  second.step(fresh);
  for (const auto& [name, parameter] : first.names)
    CHECK(at::equal(parameter, second.names.at(name)));
}

TEST_CASE("training state: a position of an earlier version counts only batches") {
  const TemporaryDirectory folder;
  const Training training;
  AdamW adamw(training.parameters());
  training.step(adamw);
  save_training_state(folder.path(), adamw, training.names, kPosition, single_rank_states());
  const fs::path file = folder.path() / "training_position.json";
  std::string json = read_file(file);
  const std::string rows = ",\n    \"rows\": 40";
  REQUIRE(json.find(rows) != std::string::npos);
  std::ofstream(file) << json.replace(json.find(rows), rows.size(), "");
  const TrainingPosition position = load_training_position(folder.path());
  CHECK(position.loader == LoaderState{.seed = 3, .epoch = 1, .batch = 5});
}

TEST_CASE("training state: SGD's momentum is restored, and a state of another kind is refused") {
  const TemporaryDirectory folder;
  const Training training;
  torch::optim::SGD sgd(training.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  training.step(sgd);
  save_training_state(folder.path(), sgd, training.names, kPosition, single_rank_states());
  torch::optim::SGD other(training.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  load_training_state(folder.path(), other, training.names);
  CHECK(other.state().size() == 2);
  AdamW adamw(training.parameters());
  CHECK(code_of([&] { load_training_state(folder.path(), adamw, training.names); }) ==
        "checkpoint.optimizer-kind");
}

TEST_CASE("training state: a tensor that is no number is refused where a number is expected") {
  const TemporaryDirectory folder;
  const Training training;
  AdamW adamw(training.parameters());
  training.step(adamw);
  save_training_state(folder.path(), adamw, training.names, kPosition, single_rank_states());
  const fs::path file = folder.path() / "optimizer.safetensors";
  TensorDict tensors = load_safetensors(file);
  for (const at::Tensor& step :
       {at::ones({2}, at::kLong), at::scalar_tensor(0x1p63, at::kDouble)}) {
    tensors["bias.step"] = step;
    save_safetensors(file, tensors);
    CHECK(code_of([&] { load_training_state(folder.path(), adamw, training.names); }) ==
          "checkpoint.optimizer-shape");
  }
}

TEST_CASE("training state: numbers that do not fit into their types are refused") {
  const TemporaryDirectory folder;
  const Training training;
  AdamW adamw(training.parameters());
  training.step(adamw);
  nlohmann::json options = options_of(adamw);
  check_options(adamw, options, "saved.json");
  options[0]["rounding_seed"] = 1e300;
  CHECK(code_of([&] { check_options(adamw, options, "saved.json"); }) ==
        "checkpoint.optimizer-options");
  options = options_of(adamw);
  options[0]["eps"] = "inf";
  CHECK_NOTHROW(check_options(adamw, options, "saved.json"));
  for (const char* text : {"", "1e-3x", " 1", "0x1p3", "1e999"}) {
    CAPTURE(text);
    options[0]["eps"] = text;
    CHECK(code_of([&] { check_options(adamw, options, "saved.json"); }) ==
          "checkpoint.optimizer-options");
  }
  save_training_state(folder.path(), adamw, training.names, kPosition, single_rank_states());
  const fs::path file = folder.path() / "training_position.json";
  std::string json = read_file(file);
  const std::string seed = "\"seed\": 3";
  REQUIRE(json.find(seed) != std::string::npos);
  std::ofstream(file) << json.replace(json.find(seed), seed.size(), "\"seed\": 1e300");
  CHECK(code_of([&] { load_training_position(folder.path()); }) == "checkpoint.position");
}

TEST_CASE("training state: changed options continue, unless the arguments have changed them too") {
  const TemporaryDirectory folder;
  const fs::path file = folder.path() / "training_position.json";
  const Training training;
  torch::optim::SGD sgd(training.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  auto& options = static_cast<torch::optim::SGDOptions&>(sgd.param_groups()[0].options());
  const nlohmann::json arguments = options_of(sgd);
  options.momentum(0.1 + 0.2).weight_decay(1e-300).lr(0.3);
  const auto save = [&](const OptionsOfRun& saved) {
    save_training_state(folder.path(), sgd, training.names, kPosition, single_rank_states(), saved);
    return load_run_record(folder.path()).options.value();
  };
  const OptionsOfRun saved = save({.groups = options_of(sgd), .arguments = arguments});
  // The resumed run has another rate and momentum. Another version may have another option.
  options.lr(0.2).momentum(0.9).weight_decay(0).dampening(0.5);
  CHECK(continue_options(sgd, saved, folder.path()));
  CHECK(options.lr() == 0.2);
  CHECK(options.momentum() == 0.1 + 0.2);
  CHECK(options.weight_decay() == 1e-300);
  CHECK(options.dampening() == 0.5);

  OptionsOfRun other = saved;
  other.groups[0].erase("momentum");
  other.groups[0]["nesterov"] = 3;
  CHECK(code_of([&] { continue_options(sgd, save(other), folder.path()); }) ==
        "checkpoint.optimizer-options");
  CHECK(options.momentum() == 0.1 + 0.2);
  other = saved;
  other.groups.push_back(saved.groups[0]);
  CHECK_FALSE(continue_options(sgd, save(other), folder.path()));
  other.groups = "none";
  CHECK(code_of([&] { save(other); }) == "checkpoint.position");
  CHECK(read_file(file).find("threads") != std::string::npos);

  // A checkpoint of an earlier version has neither options nor the number of threads.
  nlohmann::json json = nlohmann::json::parse(read_file(file));
  json.erase("optimizer_options");
  json.erase("threads");
  write_file_atomically(file, json.dump());
  CHECK_FALSE(load_run_record(folder.path()).options.has_value());
  CHECK(load_run_record(folder.path()).threads == 0);
  CHECK(load_training_position(folder.path()).scheduler_step == 7);
}

TEST_CASE("training state: another model's moments are refused") {
  const TemporaryDirectory folder;
  const Training training;
  AdamW adamw(training.parameters());
  training.step(adamw);
  save_training_state(folder.path(), adamw, training.names, kPosition, single_rank_states());

  const Training wider(5);
  AdamW wide(wider.parameters());
  CHECK(code_of([&] { load_training_state(folder.path(), wide, wider.names); }) ==
        "checkpoint.optimizer-shape");
  ParameterNames fewer = training.names;
  fewer.erase("bias");
  AdamW one({training.names.at("weight")});
  CHECK(code_of([&] { load_training_state(folder.path(), one, fewer); }) ==
        "checkpoint.optimizer-names");
}

TEST_CASE("training state: a missing or damaged file is an error, never a fresh start") {
  for (const char* name :
       {"optimizer.safetensors", "random_state.safetensors", "training_position.json"}) {
    CAPTURE(name);
    const TemporaryDirectory folder;
    const Training training;
    AdamW adamw(training.parameters());
    training.step(adamw);
    save_training_state(folder.path(), adamw, training.names, kPosition, single_rank_states());
    CHECK(has_training_state(folder.path()));
    const auto load = [&] { load_training_state(folder.path(), adamw, training.names); };
    flip_a_byte(folder.path() / name);
    CHECK(code_of(load) != "none");
    fs::remove(folder.path() / name);
    CHECK(code_of(load) != "none");
  }
}

TEST_CASE("training state: a number of the position that does not fit into 64 bits is refused") {
  const TemporaryDirectory folder;
  const Training training;
  AdamW adamw(training.parameters());
  save_training_state(folder.path(), adamw, training.names, kPosition, single_rank_states());
  const fs::path file = folder.path() / "training_position.json";
  const std::string text = read_file(file);
  for (const std::string key : {"scheduler_step", "num_processes", "epoch", "batch", "rows"}) {
    for (const std::string number : {"1e300", "1.5", "18446744073709551615", "\"1\""}) {
      CAPTURE(key);
      CAPTURE(number);
      const std::size_t begin = text.find("\"" + key + "\": ") + key.size() + 4;
      std::string changed = text;
      changed.replace(begin, text.find_first_of(",\n", begin) - begin, number);
      std::ofstream(file, std::ios::binary) << changed;
      CHECK(code_of([&] { load_training_position(folder.path()); }) == "checkpoint.position");
    }
  }
}

TEST_CASE("training state: each rank restores its own randomness, and a new rank has none") {
  const TemporaryDirectory folder;
  const Training training;
  AdamW adamw(training.parameters());
  training.step(adamw);
  std::vector<TensorDict> of_ranks;
  std::vector<at::Tensor> drawn;
  for (const std::uint64_t seed : {5, 6, 7}) {
    torch::manual_seed(seed);
    of_ranks.push_back(single_rank_states().front());
    drawn.push_back(at::rand({5}));
  }
  TrainingPosition position = kPosition;
  position.num_processes = 3;
  save_training_state(folder.path(), adamw, training.names, position, of_ranks);
  for (const std::int64_t rank : {2, 0, 1}) {
    CHECK(load_training_state(folder.path(), adamw, training.names, rank));
    CHECK(at::equal(at::rand({5}), drawn[static_cast<std::size_t>(rank)]));
  }
  torch::manual_seed(8);
  const at::Tensor own = at::rand({5});
  torch::manual_seed(8);
  CHECK_FALSE(load_training_state(folder.path(), adamw, training.names, 3));
  CHECK(at::equal(at::rand({5}), own));
  position.num_processes = 4;
  save_training_state(folder.path(), adamw, training.names, position, of_ranks);
  CHECK(code_of([&] { load_training_state(folder.path(), adamw, training.names, 3); }) ==
        "checkpoint.random-state");
}

TEST_CASE("training state: a device that the checkpoint does not know keeps its own generator") {
  at::Generator known = at::detail::createCPUGenerator(5),
                added = at::detail::createCPUGenerator(6);
  const TensorDict state = {{"cuda.0", known.get_state()}};
  const at::Tensor drawn = at::rand({5}, known);
  const at::Tensor own = at::rand({5}, at::detail::createCPUGenerator(6));
  restore_generator(known, state, "cuda.0");
  restore_generator(added, state, "cuda.1");
  CHECK(at::equal(at::rand({5}, known), drawn));
  CHECK(at::equal(at::rand({5}, added), own));
}

namespace {

// Compares an optimizer that is saved and loaded between its steps with one that never stops.
template <class Optimizer, class Options>
void check_restored(const Options& options, const std::string& name) {
  CAPTURE(name);
  const TemporaryDirectory folder;
  const auto loss_of = [](const Training& training) {
    return (training.names.at("weight") - 1).square().sum() +
           training.names.at("bias").pow(4).sum();
  };
  const auto step = [&](const Training& training, Optimizer& optimizer) {
    const auto closure = [&] {
      optimizer.zero_grad();
      at::Tensor loss = loss_of(training);
      loss.backward();
      return loss;
    };
    if constexpr (std::is_same_v<Optimizer, torch::optim::LBFGS>) {
      optimizer.step(closure);
    } else {
      closure();
      optimizer.step();
    }
  };
  const Training straight, resumed;
  Optimizer never_stopped(straight.parameters(), options);
  {
    Optimizer before(resumed.parameters(), options);
    for (int i = 0; i < 3; ++i) {
      step(straight, never_stopped);
      step(resumed, before);
    }
    save_training_state(folder.path(), before, resumed.names, kPosition, single_rank_states());
  }
  CHECK(load_training_position(folder.path()).optimizer == name);
  Optimizer after(resumed.parameters(), options);
  load_training_state(folder.path(), after, resumed.names);
  for (int i = 0; i < 3; ++i) {
    step(straight, never_stopped);
    step(resumed, after);
  }
  for (const auto& [each, parameter] : straight.names) {
    CAPTURE(each);
    CHECK(at::equal(parameter, resumed.names.at(each)));
  }
}

}  // namespace

TEST_CASE("training state: the state of each LibTorch optimizer is restored to the bit") {
  namespace optim = torch::optim;
  check_restored<optim::AdamW>(optim::AdamWOptions(0.1).amsgrad(true), "AdamW");
  check_restored<optim::Adam>(optim::AdamOptions(0.1), "Adam");
  check_restored<optim::Adam>(optim::AdamOptions(0.1).amsgrad(true), "Adam");
  check_restored<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9), "SGD");
  check_restored<optim::RMSprop>(optim::RMSpropOptions(0.1).momentum(0.9).centered(true),
                                 "RMSprop");
  check_restored<optim::RMSprop>(optim::RMSpropOptions(0.1), "RMSprop");
  check_restored<optim::Adagrad>(optim::AdagradOptions(0.1).lr_decay(0.1), "Adagrad");
  check_restored<optim::LBFGS>(optim::LBFGSOptions(0.1).max_iter(4).history_size(3), "LBFGS");
}

TEST_CASE("training state: SGD's momentum of sparse gradients is restored to the bit") {
  const TemporaryDirectory folder;
  const auto make_table = [] {
    torch::manual_seed(1);
    return torch::nn::Embedding(torch::nn::EmbeddingOptions(9, 3).sparse(true));
  };
  const auto step = [](torch::nn::Embedding& table, torch::optim::SGD& sgd, std::int64_t row) {
    sgd.zero_grad();
    table(torch::tensor({row, row + 1, row}, at::kLong)).square().sum().backward();
    sgd.step();
  };
  const auto options = torch::optim::SGDOptions(0.1).momentum(0.9);
  torch::nn::Embedding straight = make_table(), resumed = make_table();
  const ParameterNames names = {{"table", resumed->weight}};
  torch::optim::SGD never_stopped(straight->parameters(), options);
  {
    torch::optim::SGD before(resumed->parameters(), options);
    for (std::int64_t row = 0; row < 2; ++row) {
      step(straight, never_stopped, row);
      step(resumed, before, row);
    }
    save_training_state(folder.path(), before, names, kPosition, single_rank_states());
  }
  torch::optim::SGD after(resumed->parameters(), options);
  CHECK(load_training_state(folder.path(), after, names));
  for (std::int64_t row = 1; row < 4; ++row) {
    step(straight, never_stopped, row);
    step(resumed, after, row);
  }
  CHECK(at::equal(straight->weight, resumed->weight));
  TensorDict saved = load_safetensors(folder.path() / "optimizer.safetensors");
  REQUIRE(saved.size() == 3);
  at::Tensor& indices = saved.at("table.momentum_buffer:indices");
  indices = at::full_like(indices, 9);  // the table has nine rows
  save_safetensors(folder.path() / "optimizer.safetensors", saved);
  CHECK(code_of([&] { load_training_state(folder.path(), after, names); }) ==
        "checkpoint.optimizer-shape");
}

namespace {

struct OwnOptions : torch::optim::OptimizerCloneableOptions<OwnOptions> {
  double get_lr() const override { return 0.1; }
  void set_lr(const double) override {}
};

struct OwnOptimizer : torch::optim::Optimizer {
  explicit OwnOptimizer(std::vector<at::Tensor> parameters)
      : Optimizer({torch::optim::OptimizerParamGroup(std::move(parameters))},
                  std::make_unique<OwnOptions>()) {}
  at::Tensor step(LossClosure) override { return {}; }
};

// Has the options of LibTorch's SGD, and keeps its momentum in a member.
struct OwnMomentum : torch::optim::Optimizer {
  explicit OwnMomentum(std::vector<at::Tensor> parameters)
      : Optimizer({torch::optim::OptimizerParamGroup(std::move(parameters))},
                  std::make_unique<torch::optim::SGDOptions>(0.1)) {}
  at::Tensor step(LossClosure) override {
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& parameter : param_groups()[0].params()) {
      at::Tensor& momentum = momenta[parameter.unsafeGetTensorImpl()];
      momentum = momentum.defined() ? momentum * 0.9 + parameter.grad() : parameter.grad().clone();
      parameter.sub_(momentum, 0.1);
    }
    return {};
  }
  std::map<void*, at::Tensor> momenta;
};

// Adds a mean of the weights to LibTorch's AdamW.
struct AveragingAdamW : torch::optim::AdamW {
  using torch::optim::AdamW::AdamW;
  at::Tensor step(LossClosure closure) override {
    at::Tensor loss = torch::optim::AdamW::step(closure);
    means.push_back(param_groups()[0].params()[0].detach().clone());
    return loss;
  }
  std::vector<at::Tensor> means;
};

struct HeavyBallOptions : CloneableParamGroupOptions<HeavyBallOptions> {
  static constexpr const char* kName = "HeavyBall";
  explicit HeavyBallOptions(double lr = 0.1) : CloneableParamGroupOptions(lr, 0) {}
  int floats_per_parameter() const override { return 1; }
  double momentum = 0.9;

 protected:
  void visit(OptionVisitor& option) override { option("momentum", momentum); }
};

// An optimizer as docs/errors.md recommends it: its state is in ParamState.
struct HeavyBall : TypedOptimizer<HeavyBallOptions> {
  using TypedOptimizer::TypedOptimizer;

 protected:
  void read(const HeavyBallOptions&, const Entries& entries) const override {
    entries.state("velocity");
  }
  void update(const HeavyBallOptions& options, const Entries& entries) override {
    for (std::size_t i = 0; i < entries.parameters.size(); ++i) {
      const at::Tensor velocity = entries.state("velocity", i);
      velocity.mul_(options.momentum).add_(entries.gradients[i]);
      entries.parameters[i].sub_(velocity, options.lr());
    }
  }
};

}  // namespace

TEST_CASE("training state: an unknown optimizer cannot be saved") {
  const TemporaryDirectory folder;
  const Training training;
  const OwnOptimizer own(training.parameters());
  CHECK(code_of([&] {
          save_training_state(folder.path(), own, training.names, kPosition, single_rank_states());
        }) == "checkpoint.unknown-optimizer");
}

TEST_CASE("training state: a class that may have more state than LibTorch's is refused") {
  const TemporaryDirectory folder;
  const Training training;
  OwnMomentum momentum(training.parameters());
  AveragingAdamW averaging(training.parameters());
  for (torch::optim::Optimizer* const own :
       std::vector<torch::optim::Optimizer*>{&momentum, &averaging}) {
    training.step(*own);
    CHECK(code_of([&] {
            save_training_state(folder.path(), *own, training.names, kPosition,
                                single_rank_states());
          }) == "checkpoint.unknown-optimizer");
    CHECK(code_of([&] { options_of(*own); }) == "checkpoint.unknown-optimizer");
  }
  CHECK(fs::is_empty(folder.path()));
  torch::optim::SGD sgd(training.parameters(), torch::optim::SGDOptions(0.1));
  save_training_state(folder.path(), sgd, training.names, kPosition, single_rank_states());
  CHECK(code_of([&] { load_training_state(folder.path(), momentum, training.names); }) ==
        "checkpoint.unknown-optimizer");
}

TEST_CASE("training state: an own optimizer that derives from StatefulOptimizer continues") {
  const TemporaryDirectory folder;
  const Training first, second;
  HeavyBall straight(first.parameters()), stopped(second.parameters());
  for (int i = 0; i < 3; ++i) {
    first.step(straight);
    second.step(stopped);
  }
  save_training_state(folder.path(), stopped, second.names, kPosition, single_rank_states());
  HeavyBall resumed(second.parameters());
  load_training_state(folder.path(), resumed, second.names);
  CHECK(load_training_position(folder.path()).optimizer == "HeavyBall");
  first.step(straight);
  second.step(resumed);
  for (const auto& [name, parameter] : first.names)
    CHECK(at::equal(parameter, second.names.at(name)));
}

TEST_CASE("training state: the losses and the data's fingerprint are restored exactly") {
  const TemporaryDirectory folder;
  const Training training;
  AdamW adamw(training.parameters());
  TrainingPosition position = kPosition;
  position.losses = {.of_run = {.sum = 0.1 + 0.2, .finite = 7, .nonfinite = 2},
                     .since_log = {.sum = std::nan(""), .finite = 1, .nonfinite = 1},
                     .last_logged_step = 5};
  position.data = {.rows = 40, .sample = "0123456789abcdef"};
  position.metric_schedule = {.type = "greedy", .state = {{"best", 0.25}}};
  position.hash_chain = {.previous = "aa", .rows = {"bb", "cc"}};
  save_training_state(folder.path(), adamw, training.names, position, single_rank_states());
  const TrainingPosition read = load_training_position(folder.path());
  REQUIRE(read.losses);
  CHECK(read.losses->of_run.sum == 0.1 + 0.2);
  CHECK(read.losses->of_run.finite == 7);
  CHECK(read.losses->of_run.nonfinite == 2);
  CHECK(std::isnan(read.losses->since_log.sum));
  CHECK(read.losses->last_logged_step == 5);
  REQUIRE(read.data);
  CHECK(read.data->rows == 40);
  CHECK(read.data->sample == "0123456789abcdef");
  REQUIRE(read.metric_schedule);
  CHECK(read.metric_schedule->type == "greedy");
  CHECK(read.metric_schedule->state == std::map<std::string, double>{{"best", 0.25}});
  REQUIRE(read.hash_chain);
  CHECK(read.hash_chain->previous == "aa");
  CHECK(read.hash_chain->rows == std::vector<std::string>{"bb", "cc"});
}

TEST_CASE("training state: the work that is due after the step is restored exactly") {
  const TemporaryDirectory folder;
  const fs::path file = folder.path() / "training_position.json";
  const Training training;
  AdamW adamw(training.parameters());
  TrainingPosition position = kPosition;
  const auto saved = [&] {
    save_training_state(folder.path(), adamw, training.names, position, single_rank_states());
    return load_training_position(folder.path()).due;
  };
  CHECK_FALSE(saved());
  CHECK(read_file(file).find("due") == std::string::npos);
  for (const double norm : {0.1 + 0.2, HUGE_VAL}) {
    position.due = {.epoch_end = true, .learning_rate = 1e-5 / 3, .grad_norm = norm};
    const std::optional<DueWork> read = saved();
    REQUIRE(read);
    CHECK_FALSE(read->evaluation);
    CHECK(read->epoch_end);
    CHECK(read->learning_rate == 1e-5 / 3);
    CHECK(read->grad_norm == norm);
  }
  position.due->grad_norm = std::nan("");
  CHECK(std::isnan(saved()->grad_norm));
  const std::string whole = read_file(file);
  for (const std::string other : {"1", "null", "\"yes\""}) {
    CAPTURE(other);
    std::string json = whole;
    const std::string flag = "\"evaluation\": false";
    json.replace(json.find(flag), flag.size(), "\"evaluation\": " + other);
    write_file_atomically(file, json);
    CHECK(code_of([&] { load_training_position(folder.path()); }) == "checkpoint.position");
  }
}

TEST_CASE("training state: a schedule continues after a metric that was not finite") {
  const TemporaryDirectory folder;
  const fs::path file = folder.path() / "training_position.json";
  const Training training;
  AdamW adamw(training.parameters());
  const Kwargs kwargs = {{"smooth", true}, {"window_size", 3}, {"patience", 0}};
  const auto schedule = get_metric_scheduler(SchedulerType::greedy, adamw, kwargs),
             without = get_metric_scheduler(SchedulerType::greedy, adamw, kwargs);
  const auto state_of = [&](const MetricScheduler& each) {
    TrainingPosition position = kPosition;
    position.metric_schedule = MetricScheduleState{.type = "greedy", .state = each.state()};
    save_training_state(folder.path(), adamw, training.names, position, single_rank_states());
    return load_training_position(folder.path()).metric_schedule->state;
  };
  for (const double metric : {3.0, std::nan(""), 1.0, HUGE_VAL}) {
    schedule->step(metric);
    if (std::isfinite(metric)) without->step(metric);
    for (const auto& [name, number] : state_of(*schedule)) CHECK(std::isfinite(number));
  }
  CHECK(schedule->state().at("sum") == without->state().at("sum"));
  CHECK_FALSE(schedule->state().contains("window.2"));

  // Earlier versions wrote the metrics of the window as null.
  std::string json = read_file(file);
  for (const std::string name : {"sum", "window.0"}) {
    const std::size_t begin = json.find("\"" + name + "\": ") + name.size() + 4;
    json.replace(begin, json.find_first_of(",\n", begin) - begin, "null");
  }
  write_file_atomically(file, json);
  const auto loaded = get_metric_scheduler(SchedulerType::greedy, adamw, kwargs);
  loaded->set_state(load_training_position(folder.path()).metric_schedule->state);
  CHECK(loaded->state().at("sum") == 1);
  CHECK(loaded->state().at("window.0") == 1);
}

TEST_CASE("training state: a position that lacks a part or repeats a key is refused") {
  const TemporaryDirectory folder;
  for (const std::string text :
       {"", "[]", "{", R"({"loader": {}})", R"({"loader": 1, "optimizer": "AdamW"})",
        R"({"loader": {}, "loader": {}})"}) {
    CAPTURE(text);
    write_file_atomically(folder.path() / "training_position.json", text);
    CHECK(code_of([&] { load_training_position(folder.path()); }) == "checkpoint.position");
  }
}

}  // namespace checkpoint_training_state_test
