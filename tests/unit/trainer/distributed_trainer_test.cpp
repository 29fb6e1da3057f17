// A Trainer in several processes, each a fork of this one: all processes follow a request of one of
// them, and scores count every row once.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/process/notebook_launcher.h"
#include "hasten/trainer/trainer.h"
#include "unit/code_of.h"
#include "unit/prepare/multiprocess_checks.h"
#include "unit/trainer/tiny.h"

namespace trainer_distributed_trainer_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
using namespace hasten::tiny_runs;
namespace fs = std::filesystem;

namespace {

constexpr double kNoDropout = 0;

// Rows with labels at some of their tokens. The share of labelled tokens differs in each row.
ColumnDataset marked_tokens(std::int64_t count) {
  torch::manual_seed(12);
  const at::Tensor ids = at::randint(5, 60, {count, 12});
  const at::Tensor marked = at::rand({count, 12}) < at::rand({count, 1});
  return ColumnDataset({{"input_ids", ids},
                        {"attention_mask", at::ones_like(ids)},
                        {"labels", (ids % 2).masked_fill(marked.logical_not(), -100)}});
}

struct Trained {
  std::vector<double> losses;
  TensorDict weights;
};

// 25 rows in steps of six: the last step of an epoch has one row.
Trained train_on_tokens(const fs::path& folder, std::int64_t batch, std::int64_t accumulation) {
  TrainingArguments args = short_run(folder, batch);
  args.gradient_accumulation_steps = accumulation;
  args.max_steps = 12;
  args.optim = OptimizerName::sgd;
  args.learning_rate = 0.1;
  const auto model = new_model<BertForTokenClassification>(kNoDropout);
  Trainer trainer(model, args, {.train_dataset = TrainerDataset(marked_tokens(25))});
  trainer.train();
  return {.losses = logged(trainer), .weights = model->state_dict()};
}

// Makes a request at step 5, in one process only.
struct RequestingCallback : TrainerCallback {
  RequestingCallback(bool active, bool TrainerControl::*what) : active(active), what(what) {}
  void on_step_end(const TrainerEvent& event, TrainerControl& control, double) override {
    if (active && event.state.global_step == 5) control.*what = true;
  }
  void on_save(const TrainerEvent&, TrainerControl&) override { ++saves; }
  void on_evaluate(const TrainerEvent&, TrainerControl&, const Metrics&) override { ++evaluations; }
  bool active;
  bool TrainerControl::*what;
  int saves = 0, evaluations = 0;
};

}  // namespace

TEST_CASE("distributed trainer: all processes follow the request of one callback") {
  const Folder folder;
  notebook_launcher(
      [&] {
        for (const auto what : {&TrainerControl::should_training_stop,
                                &TrainerControl::should_evaluate, &TrainerControl::should_save}) {
          Trainer trainer(
              new_model(kNoDropout), twenty_steps(folder.path),
              {.train_dataset = TrainerDataset(rows(40)), .eval_dataset = TrainerDataset(rows(7))});
          const auto callback =
              std::make_shared<RequestingCallback>(!trainer.is_world_process_zero(), what);
          trainer.add_callback(callback);
          const TrainOutput out = trainer.train();
          const bool stops = what == &TrainerControl::should_training_stop;
          require(out.global_step == (stops ? 5 : 20), str("ended at step ", out.global_step));
          require(callback->saves == (what == &TrainerControl::should_save),
                  str(callback->saves, " saves"));
          require(callback->evaluations == (what == &TrainerControl::should_evaluate),
                  str(callback->evaluations, " evaluations"));
        }
        require(fs::exists(folder.path / "checkpoint-5" / "model.safetensors"), "no checkpoint");
      },
      {.num_processes = 3});
}

namespace {

enum class Place { train_begin, step_begin, substep_end, log, save };

// Stops the run at one of these places in one process only: at the beginning, or in step 5.
struct StoppingCallback : TrainerCallback {
  StoppingCallback(bool active, Place place) : active(active), place(place) {}
  void on_train_begin(const TrainerEvent& event, TrainerControl& control) override {
    at(Place::train_begin, event, control);
  }
  void on_step_begin(const TrainerEvent& event, TrainerControl& control) override {
    at(Place::step_begin, event, control);
  }
  void on_substep_end(const TrainerEvent& event, TrainerControl& control) override {
    at(Place::substep_end, event, control);
  }
  void on_log(const TrainerEvent& event, TrainerControl& control, const Metrics&) override {
    at(Place::log, event, control);
  }
  void on_save(const TrainerEvent& event, TrainerControl& control) override {
    at(Place::save, event, control);
  }
  void at(Place now, const TrainerEvent& event, TrainerControl& control) const {
    if (active && now == place && (now == Place::train_begin || event.state.global_step == 5))
      control.should_training_stop = true;
  }
  bool active;
  Place place;
};

}  // namespace

TEST_CASE("distributed trainer: the Trainer uses the precision set by hasten launch") {
  const Folder folder;
  notebook_launcher(
      [&] {
        const auto losses = [&](const char* precision, bool bf16) {
          setenv("ACCELERATE_MIXED_PRECISION", precision, 1);
          TrainingArguments args = twenty_steps(folder.path);
          args.max_steps = 3;
          args.bf16 = bf16;
          Trainer trainer(new_model(kNoDropout), args, {.train_dataset = TrainerDataset(rows(40))});
          return trainer.train().training_loss;
        };
        require(losses("bf16", false) == losses("no", true),
                "the losses differ from those of --bf16");
        require(losses("bf16", false) != losses("no", false),
                "the losses equal those without bf16");
      },
      {.num_processes = 2});
}

TEST_CASE("distributed trainer: if one process requests the end, all end at the same step") {
  const Folder folder;
  // The step in which a process requests the end is the last step.
  for (const auto& [place, last] :
       std::vector<std::pair<Place, std::int64_t>>{{Place::train_begin, 0},
                                                   {Place::step_begin, 6},
                                                   {Place::substep_end, 6},
                                                   {Place::log, 5},
                                                   {Place::save, 5}}) {
    CAPTURE(static_cast<int>(place));
    notebook_launcher(
        [&, place = place, last = last] {
          TrainingArguments args = twenty_steps(folder.path);
          args.gradient_accumulation_steps = 2;
          args.overwrite_output_dir = true;
          args.save_strategy = SaveStrategy::steps;
          args.save_steps = 5;
          args.async_save = false;  // otherwise on_save is called some steps later
          Trainer trainer(new_model(kNoDropout), args, {.train_dataset = TrainerDataset(rows(80))});
          trainer.add_callback(
              std::make_shared<StoppingCallback>(!trainer.is_world_process_zero(), place));
          const TrainOutput out = trainer.train();
          require(out.global_step == last, str("ended at step ", out.global_step));
        },
        {.num_processes = 2});
  }
}

TEST_CASE("distributed trainer: a single process ends at the same step as several") {
  const Folder folder;
  for (const auto& [place, last] : std::vector<std::pair<Place, std::int64_t>>{
           {Place::step_begin, 6}, {Place::substep_end, 6}, {Place::log, 5}}) {
    CAPTURE(static_cast<int>(place));
    TrainingArguments args = twenty_steps(folder.path);
    args.gradient_accumulation_steps = 2;
    args.overwrite_output_dir = true;
    args.save_strategy = SaveStrategy::epoch;
    Trainer trainer(new_model(kNoDropout), args, {.train_dataset = TrainerDataset(rows(80))});
    trainer.add_callback(std::make_shared<StoppingCallback>(true, place));
    CHECK(trainer.train().global_step == last);
    // The checkpoint of the end of the run holds whole steps.
    args.overwrite_output_dir = false;
    args.resume_from_checkpoint = "true";
    Trainer resumed(new_model(kNoDropout), args, {.train_dataset = TrainerDataset(rows(80))});
    CHECK(resumed.train().steps == trainer.state().max_steps - last);
  }
}

TEST_CASE("distributed trainer: a metric of all predictions sees every row once, in order") {
  const Folder folder;
  const auto data = rows(23);  // the last step of three processes has five of six rows
  const auto model = new_model(kNoDropout);
  const PredictionOutput expected =
      Trainer(model, twenty_steps(folder.path), {}).predict(TrainerDataset(data));
  notebook_launcher(
      [&] {
        EvalPrediction seen;
        const auto metric = metric_from_function([&](const EvalPrediction& all) {
          seen = all;
          return Metrics{{"rows", static_cast<double>(all.label_ids.size(0))}};
        });
        Trainer trainer(new_model(kNoDropout), twenty_steps(folder.path),
                        {.compute_metrics = metric});
        const Metrics metrics = trainer.evaluate(TrainerDataset(data));
        require(metrics.at("eval_rows") == 23, str(metrics.at("eval_rows"), " rows"));
        require(at::equal(seen.label_ids, expected.label_ids), "the labels differ");
        require(at::allclose(seen.predictions, expected.predictions, 1e-5, 1e-6),
                "the predictions differ");
        require(std::abs(metrics.at("eval_loss") - expected.metrics.at("test_loss")) < 1e-6,
                "loss");
        const PredictionOutput out = trainer.predict(TrainerDataset(data));
        require(at::equal(out.label_ids, expected.label_ids), "the labels of predict differ");
        require(at::allclose(out.predictions, expected.predictions, 1e-5, 1e-6),
                "the predictions of predict differ");
        // Three processes share one row.
        const Metrics few = trainer.evaluate(TrainerDataset(rows(1)));
        require(few.at("eval_rows") == 1, str(few.at("eval_rows"), " rows instead of one"));
      },
      {.num_processes = 3});
}

TEST_CASE("distributed trainer: token labels have the same weight in any number of processes") {
  const Folder folder;
  const Trained alone = train_on_tokens(folder.path, 6, 1);
  REQUIRE(alone.losses.size() == 12);
  for (const auto& [processes, batch, accumulation] :
       {std::array<std::int64_t, 3>{2, 3, 1}, {3, 2, 1}, {3, 1, 2}}) {
    CAPTURE(processes);
    CAPTURE(accumulation);
    notebook_launcher(
        [&, batch = batch, accumulation = accumulation] {
          const Trained together = train_on_tokens(folder.path, batch, accumulation);
          require(together.losses.size() == alone.losses.size(), "the numbers of steps differ");
          for (std::size_t i = 0; i < alone.losses.size(); ++i) {
            require(
                std::abs(together.losses[i] - alone.losses[i]) < 1e-5,
                str("loss of step ", i + 1, ": ", together.losses[i], ", alone ", alone.losses[i]));
          }
          for (const auto& [name, weight] : alone.weights) {
            require(at::allclose(together.weights.at(name), weight, 1e-5, 1e-6), name);
          }
        },
        {.num_processes = processes});
  }
}

TEST_CASE("distributed trainer: a metric that is a mean of each process is refused") {
  const Folder folder;
  notebook_launcher(
      [&] {
        TrainingArguments args = twenty_steps(folder.path);
        args.average_tokens_across_devices = false;
        require(
            code_of([&] { Trainer(new_model(kNoDropout), args, {}); }) == "trainer.average-tokens",
            "not refused");
      },
      {.num_processes = 2});
}

TEST_CASE("distributed trainer: the options of the gradient exchange change no result") {
  const Folder folder;
  notebook_launcher(
      [&] {
        const auto trained = [&](const TrainingArguments& args) {
          const auto model = new_model(kNoDropout);
          Trainer(model, args, {.train_dataset = TrainerDataset(rows(40))}).train();
          return model->state_dict();
        };
        const auto require_equal = [](const TensorDict& one, const TensorDict& other) {
          for (const auto& [name, tensor] : one)
            require(at::equal(tensor, other.at(name)), str("other values of ", name));
        };
        TrainingArguments args = twenty_steps(folder.path);
        const TensorDict expected = trained(args);
        args.ddp_bucket_cap_mb = 1;
        args.ddp_broadcast_buffers = false;
        args.ddp_find_unused_parameters = true;
        args.ddp_timeout = 600;
        require_equal(trained(args), expected);
        args.ddp_find_unused_parameters = false;
        args.ddp_static_graph = true;
        require_equal(trained(args), expected);
      },
      {.num_processes = 2});
}

namespace {

enum class Pass { forward, backward };

// Runs out of memory in training batches with more than `fits` rows, after `fails_after` such
// calls. In the backward pass, this happens when the later layers have their gradients.
struct LimitedMemoryModel : BertForSequenceClassification {
  LimitedMemoryModel(const BertConfig& config, Pass pass)
      : BertForSequenceClassification(config), pass(pass) {
    parameters().front().register_hook([this](const at::Tensor& gradient) {
      TORCH_CHECK_WITH(OutOfMemoryError, !fails_backward, "tried to allocate too much");
      return gradient;
    });
  }
  ModelOutput forward(const TensorDict& batch) override {
    const bool fails =
        batch.at("input_ids").size(0) > fits && is_training() && ++calls > fails_after;
    TORCH_CHECK_WITH(OutOfMemoryError, !fails || pass == Pass::backward, "tried to allocate much");
    fails_backward = fails;
    return BertForSequenceClassification::forward(batch);
  }
  Pass pass;
  std::int64_t fits = 1000, fails_after = 0, calls = 0;
  bool fails_backward = false;
};

std::shared_ptr<LimitedMemoryModel> limited_memory_model(Pass pass, std::int64_t fits,
                                                         std::int64_t fails_after) {
  torch::manual_seed(7);
  auto model = std::make_shared<LimitedMemoryModel>(tiny(kNoDropout), pass);
  model->initialize();
  model->fits = fits;
  model->fails_after = fails_after;
  return model;
}

// 50 rows in steps of 16 of two processes: the last step of an epoch has two rows.
TrainingArguments search_arguments(const fs::path& folder) {
  TrainingArguments args = short_run(folder, 4);
  args.gradient_accumulation_steps = 2;
  args.num_train_epochs = 2;
  args.learning_rate = 1e-3;
  args.optim = OptimizerName::sgd;
  return args;
}

}  // namespace

TEST_CASE("distributed trainer: auto_find_batch_size: all take smaller batches if one runs out") {
  const Folder folder;
  notebook_launcher(
      [&] {
        Trainer whole(new_model(kNoDropout), search_arguments(folder.path),
                      {.train_dataset = TrainerDataset(rows(50))});
        whole.train();
        for (const Pass pass : {Pass::forward, Pass::backward}) {
          // Memory runs out at once, in the middle of a window, and in the second epoch after the
          // checkpoint of step 4. The seventh batch of an epoch has only repeated rows in rank 1.
          for (const std::int64_t fails_after : {0, 3, 7}) {
            TrainingArguments args =
                search_arguments(folder.path / str(static_cast<int>(pass), fails_after));
            args.auto_find_batch_size = true;
            args.save_strategy = SaveStrategy::steps;
            args.save_steps = 2;
            const bool is_short = !whole.is_world_process_zero();
            const auto model = limited_memory_model(pass, is_short ? 2 : 1000, fails_after);
            Trainer trainer(
                model, args,
                {.train_dataset = TrainerDataset(rows(50)), .log_sink = [](std::string_view) {}});
            const TrainOutput out = trainer.train();
            const std::string place =
                str("pass ", static_cast<int>(pass), ", fails_after ", fails_after, ": ");
            require(out.steps == (fails_after == 7 ? 4 : 8), str(place, out.steps, " steps"));
            require(trainer.args().per_device_train_batch_size == 2, place + "other batches");
            require(trainer.args().gradient_accumulation_steps == 4, place + "other windows");
            const auto losses = logged(trainer), expected = logged(whole);
            require(losses.size() == expected.size(), place + "the numbers of steps differ");
            for (std::size_t i = 0; i < losses.size(); ++i)
              require(std::abs(losses[i] - expected[i]) < 1e-5, str(place, "loss of step ", i + 1));
          }
        }
      },
      {.num_processes = 2});
}

TEST_CASE("distributed trainer: auto_find_batch_size: one row that does not fit ends all") {
  const Folder folder;
  notebook_launcher(
      [&] {
        TrainingArguments args = search_arguments(folder.path);
        args.auto_find_batch_size = true;
        const auto model = limited_memory_model(Pass::forward, 1000, 0);
        Trainer trainer(
            model, args,
            {.train_dataset = TrainerDataset(rows(50)), .log_sink = [](std::string_view) {}});
        if (!trainer.is_world_process_zero()) model->fits = 0;
        std::string text;
        try {
          trainer.train();
        } catch (const MemoryError& error) {
          text = str(error.code(), ' ', error.what());
        }
        require(text.find("trainer.out-of-memory") == 0, text);
        const bool names_rank = text.find("rank 1 ran out of memory") != std::string::npos;
        require(names_rank == trainer.is_world_process_zero(), text);
        require(trainer.args().per_device_train_batch_size == 1, "not the floor");
      },
      {.num_processes = 2});
}

TEST_CASE("distributed trainer: auto_find_batch_size: an object that throws in one process") {
  // Throws in the process of rank 1, before the run or when the run starts again.
  struct FailingObject {
    TensorDict state_dict() const {
      if (rank == 1 && fails_in_state) throw std::runtime_error("the object has no state");
      return {{"value", at::ones({1})}};
    }
    void load_state_dict(const TensorDict&) {
      if (rank == 1) throw std::runtime_error("the object cannot be restored");
    }
    std::int64_t rank = 0;
    bool fails_in_state = false;
  };
  const Folder folder;
  notebook_launcher(
      [&] {
        for (const bool fails_in_state : {true, false}) {
          TrainingArguments args = search_arguments(folder.path);
          args.auto_find_batch_size = true;
          args.ddp_timeout = 20;  // a process that waits for the other one fails
          FailingObject object{.rank = 0, .fails_in_state = fails_in_state};
          Trainer trainer(
              limited_memory_model(Pass::forward, 2, 0), args,
              {.train_dataset = TrainerDataset(rows(50)), .log_sink = [](std::string_view) {}});
          object.rank = trainer.accelerator().process().process_index;
          trainer.accelerator().register_for_checkpointing(object);
          std::string error = "none";
          try {
            trainer.train();
          } catch (const Error& of_other_rank) {
            error = of_other_rank.code();
          } catch (const std::runtime_error& own) {
            error = own.what();
          }
          const std::string own =
              fails_in_state ? "the object has no state" : "the object cannot be restored";
          require(error == (object.rank == 1 ? own : "process.failed-elsewhere"), error);
        }
      },
      {.num_processes = 2});
}

}  // namespace trainer_distributed_trainer_test
