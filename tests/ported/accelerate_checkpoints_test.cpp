// Accelerate's tests/test_state_checkpointing.py and
// test_utils/scripts/external_deps/test_checkpointing.py, assert by assert. The comments name their
// functions.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <filesystem>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "hasten/base/files.h"
#include "hasten/data/loader.h"
#include "hasten/optim/scheduler.h"
#include "hasten/process/notebook_launcher.h"
#include "ported/regression.h"

namespace ported_accelerate_checkpoints_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
using namespace hasten::ported;
namespace fs = std::filesystem;
namespace optim = torch::optim;

namespace {

// Owns the objects that the tests prepare: a model with random weights, Adam, a schedule and two
// loaders.
struct Run {
  explicit Run(const ProjectConfiguration& project = {})
      : accelerator({.cpu = true, .project_config = project}) {
    torch::manual_seed(42);
    net = std::make_shared<RegressionModel>(at::randn({}).item<double>(),
                                            at::randn({}).item<double>());
    adam = std::make_unique<optim::Adam>(net->parameters(), optim::AdamOptions(1e-3));
    decay = std::make_shared<optim::StepLR>(*adam, 1, 0.99);
  }
  double a() const { return net->a.item<double>(); }
  double b() const { return net->b.item<double>(); }
  double rate() const { return adam->param_groups()[0].options().get_lr(); }
  std::tuple<double, double> weights() const { return {a(), b()}; }
  // Adam's moments and steps as one list of numbers.
  std::vector<double> optimizer_state() const {
    std::vector<double> numbers;
    for (const at::Tensor& parameter : net->parameters()) {
      const auto found = adam->state().find(parameter.unsafeGetTensorImpl());
      if (found == adam->state().end()) continue;
      const auto& state = static_cast<const optim::AdamParamState&>(*found->second);
      numbers.insert(numbers.end(),
                     {static_cast<double>(state.step()), state.exp_avg().item<double>(),
                      state.exp_avg_sq().item<double>()});
    }
    return numbers;
  }

  Accelerator accelerator;
  std::shared_ptr<RegressionModel> net;
  std::unique_ptr<optim::Adam> adam;
  std::shared_ptr<optim::LRScheduler> decay;
};

auto shuffled(std::int64_t rows) {
  return make_loader(regression_rows(rows), {.batch_size = 16, .shuffle = true, .seed = 42});
}

// Prepares all objects and calls `body` with a function that trains some epochs and returns a
// random number for each epoch.
template <class Body>
void with_prepared(Run& run, const Body& body) {
  auto raw_train = shuffled(64), raw_valid = shuffled(16);
  auto [model, optimizer, loader, valid, schedule] =
      run.accelerator.prepare(run.net, *run.adam, raw_train, raw_valid, run.decay);
  // Structured bindings are not variables, so a lambda cannot capture them.
  body([&run, &model = model, &optimizer = optimizer, &loader = loader, &schedule = schedule](
           int epochs, bool schedules = false) {
    std::vector<double> drawn;
    for (int epoch = 0; epoch < epochs; ++epoch) {
      for (auto& batch : loader) {
        run.accelerator.backward(mse(model(batch.at("x")), batch.at("y")));
        optimizer.step();
        optimizer.zero_grad();
      }
      drawn.push_back(at::rand({}).item<double>());
      if (schedules) schedule.step();
    }
    return drawn;
  });
}

std::vector<double> concatenate(std::vector<double> first, const std::vector<double>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// Trains a run of three epochs, and then a second run that starts from the first run's initial
// state, saves and loads a checkpoint after two epochs, and continues. `save` returns the folder of
// a checkpoint, and `load_first` loads the initial one.
template <class Save, class LoadFirst>
void check_resumes(const ProjectConfiguration& project, const Save& save,
                   const LoadFirst& load_first) {
  std::tuple<double, double> weights_before, weights_after;
  std::vector<double> state_before, state_after, drawn;
  fs::path initial;
  {
    Run run(project);
    with_prepared(run, [&](const auto& train) {
      initial = save(run.accelerator, "initial");
      weights_before = run.weights();
      state_before = run.optimizer_state();
      drawn = train(3);
      weights_after = run.weights();
      state_after = run.optimizer_state();
    });
  }
  CHECK(weights_before != weights_after);
  Run run(project);
  with_prepared(run, [&](const auto& train) {
    load_first(run.accelerator, initial);
    CHECK(run.weights() == weights_before);
    CHECK(run.optimizer_state() == state_before);
    std::vector<double> again = train(2);
    const fs::path checkpoint = save(run.accelerator, "checkpoint");
    run.accelerator.load_state(checkpoint);
    again = concatenate(again, train(1));
    CHECK(run.weights() == weights_after);
    CHECK(run.optimizer_state() == state_after);
    CHECK(again == drawn);
  });
}

ProjectConfiguration named(const fs::path& folder, std::optional<std::int64_t> limit = {}) {
  return {.project_dir = folder, .automatic_checkpoint_naming = true, .total_limit = limit};
}

}  // namespace

TEST_CASE("checkpoints of a project: a limit of one keeps one checkpoint") {
  // test_with_save_limit
  const TemporaryDirectory folder;
  Run run(named(folder.path(), 1));
  with_prepared(run, [&](const auto&) {
    run.accelerator.save_state();
    run.accelerator.save_state();
  });
  const fs::directory_iterator files(folder.path() / "checkpoints");
  CHECK(std::distance(fs::begin(files), fs::end(files)) == 1);
}

TEST_CASE(
    "checkpoints of a project: a run continues with its weights, moments and random numbers") {
  const auto load = [](Accelerator& accelerator, const fs::path& from) {
    accelerator.load_state(from);
  };
  const auto save = [](Accelerator& accelerator, const char*) { return accelerator.save_state(); };
  // test_can_resume_training_with_folder
  {
    const TemporaryDirectory folder;
    check_resumes(
        {},
        [&](Accelerator& accelerator, const char* name) {
          return accelerator.save_state(folder.path() / name);
        },
        load);
  }
  // test_can_resume_training: hasten finds the next number by itself, without `iteration`
  {
    const TemporaryDirectory folder;
    check_resumes(named(folder.path()), save, load);
    CHECK(fs::exists(folder.path() / "checkpoints" / "checkpoint_1"));
  }
  // test_can_resume_training_checkpoints_relative_path
  {
    const TemporaryDirectory folder;
    check_resumes(
        named(fs::relative(folder.path())), save,
        [](Accelerator& accelerator, const fs::path&) { CHECK(accelerator.load_state()); });
  }
}

TEST_CASE("checkpoints of a project: load_state restores the schedule") {
  // test_with_scheduler
  const TemporaryDirectory folder;
  Run run(named(folder.path()));
  with_prepared(run, [&](const auto& train) {
    run.accelerator.save_state();
    const double rate = run.rate();
    train(3, true);
    const double later = run.rate();
    CHECK(later != rate);
    run.accelerator.load_state(folder.path() / "checkpoints" / "checkpoint_0");
    CHECK(run.rate() == rate);
    // The schedule's own count is restored, too, not only the rate.
    train(3, true);
    CHECK(run.rate() == later);
  });
}

TEST_CASE("checkpoints of a project: without a folder the newest one is loaded") {
  // test_automatic_loading
  const TemporaryDirectory folder;
  Run run(named(folder.path()));
  with_prepared(run, [&](const auto& train) {
    run.accelerator.save_state();
    train(2, true);
    const auto saved = run.weights();
    run.accelerator.save_state();
    train(1, true);
    const auto later = run.weights();
    run.accelerator.load_state();
    CHECK(std::get<0>(later) != run.a());
    CHECK(std::get<1>(later) != run.b());
    CHECK(run.weights() == saved);
  });
}

TEST_CASE("checkpoints of a project: rotation orders by number") {
  // test_checkpoint_deletion
  const TemporaryDirectory folder;
  Run run(named(folder.path(), 2));
  const auto model = run.accelerator.prepare(run.net);
  for (int i = 0; i < 11; ++i) run.accelerator.save_state();
  const fs::path all = folder.path() / "checkpoints";
  CHECK_FALSE(fs::exists(all / "checkpoint_0"));
  CHECK(fs::exists(all / "checkpoint_9"));
  CHECK(fs::exists(all / "checkpoint_10"));
}

TEST_CASE("checkpoints of each epoch: scores, learning rates and epoch are restored") {
  // training_function, on the regression problem instead of MRPC
  for (const int world : {1, 2}) {
    const TemporaryDirectory folder;
    debug_launcher(
        [&] {
          struct Saved {
            double score, rate;
          };
          const auto run_epochs = [&](std::int64_t from, std::int64_t to,
                                      std::vector<Saved>& epochs) {
            Accelerator accelerator({.cpu = true});
            const auto net = std::make_shared<RegressionModel>();
            optim::AdamW adamw(net->parameters(), optim::AdamWOptions(0.1));
            auto raw = shuffled(99);
            auto raw_eval = make_loader(regression_rows(50, 7), {.batch_size = 16});
            auto [model, optimizer, loader, eval] = accelerator.prepare(net, adamw, raw, raw_eval);
            auto schedule = get_scheduler("linear", optimizer, 0, 40);
            const auto score = [&, &model = model, &eval = eval] {
              const torch::NoGradGuard no_grad;
              at::Tensor sum = torch::zeros({});
              for (auto& batch : eval)
                sum += (accelerator.gather_for_metrics(model(batch.at("x"))) -
                        accelerator.gather_for_metrics(batch.at("y")))
                           .square()
                           .sum();
              return sum.item<double>();
            };
            const auto rate = [&] { return adamw.param_groups()[0].options().get_lr(); };
            if (from > 0) {
              accelerator.load_state(folder.path() / str("epoch_", from - 1));
              const Saved& saved = epochs[static_cast<std::size_t>(from - 1)];
              require(score() == saved.score, "the score of the resumed checkpoint");
              require(rate() == saved.rate, "the rate of the resumed checkpoint");
            }
            for (std::int64_t epoch = from; epoch < to; ++epoch) {
              for (auto& batch : loader) {
                accelerator.backward(mse(model(batch.at("x")), batch.at("y")));
                optimizer.step();
                schedule.step();
                optimizer.zero_grad();
              }
              accelerator.save_state(folder.path() / str("epoch_", epoch));
              epochs.push_back({score(), rate()});
            }
          };
          std::vector<Saved> straight, partial;
          run_epochs(0, 3, straight);
          partial.assign(straight.begin(), straight.begin() + 1);
          run_epochs(1, 3, partial);
          for (std::size_t epoch = 0; epoch < 3; ++epoch) {
            require(straight[epoch].score == partial[epoch].score, "the scores of later epochs");
            require(straight[epoch].rate == partial[epoch].rate, "the rates of later epochs");
          }
        },
        world);
  }
}

}  // namespace ported_accelerate_checkpoints_test
