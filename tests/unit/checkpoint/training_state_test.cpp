// What is saved comes back, and what does not belong is refused before anything is changed.
#include "hasten/checkpoint/training_state.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <fstream>

#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/formats/safetensors.h"
#include "hasten/optim/adamw.h"
#include "unit/code_of.h"

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

std::vector<TensorDict> of_this_process() { return random_states(Group::single()); }

void flip_a_byte(const fs::path& file) {
  std::string bytes = read_file(file);
  bytes[3] ^= 0x55;
  std::ofstream(file, std::ios::binary) << bytes;
}

}  // namespace

TEST_CASE("training state: moments, position and randomness come back to the bit") {
  const TemporaryDirectory folder;
  const Training first;
  AdamW adamw(first.parameters());
  for (int i = 0; i < 3; ++i) first.step(adamw);
  save_training_state(folder.path(), adamw, first.names, kPosition, of_this_process());
  const at::Tensor drawn = at::rand({5});
  first.step(adamw);

  const Training second;
  AdamW fresh(second.parameters());
  for (int i = 0; i < 3; ++i) second.step(fresh);  // the same weights, but these moments go
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

TEST_CASE("training state: a position of an earlier version counts in batches alone") {
  const TemporaryDirectory folder;
  const Training training;
  AdamW adamw(training.parameters());
  training.step(adamw);
  save_training_state(folder.path(), adamw, training.names, kPosition, of_this_process());
  const fs::path file = folder.path() / "training_position.json";
  std::string json = read_file(file);
  const std::string rows = ",\n    \"rows\": 40";
  REQUIRE(json.find(rows) != std::string::npos);
  std::ofstream(file) << json.replace(json.find(rows), rows.size(), "");
  const TrainingPosition position = load_training_position(folder.path());
  CHECK(position.loader == LoaderState{.seed = 3, .epoch = 1, .batch = 5});
}

TEST_CASE("training state: SGD's momentum comes back, and a state of another kind is refused") {
  const TemporaryDirectory folder;
  const Training training;
  torch::optim::SGD sgd(training.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  training.step(sgd);
  save_training_state(folder.path(), sgd, training.names, kPosition, of_this_process());
  torch::optim::SGD other(training.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  load_training_state(folder.path(), other, training.names);
  CHECK(other.state().size() == 2);
  AdamW adamw(training.parameters());
  CHECK(code_of([&] { load_training_state(folder.path(), adamw, training.names); }) ==
        "checkpoint.optimizer-kind");
}

TEST_CASE("training state: another model's moments are refused") {
  const TemporaryDirectory folder;
  const Training training;
  AdamW adamw(training.parameters());
  training.step(adamw);
  save_training_state(folder.path(), adamw, training.names, kPosition, of_this_process());

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
    save_training_state(folder.path(), adamw, training.names, kPosition, of_this_process());
    CHECK(has_training_state(folder.path()));
    const auto load = [&] { load_training_state(folder.path(), adamw, training.names); };
    flip_a_byte(folder.path() / name);
    CHECK(code_of(load) != "none");
    fs::remove(folder.path() / name);
    CHECK(code_of(load) != "none");
  }
}

TEST_CASE("training state: each rank's randomness is its own, and a new rank has none") {
  const TemporaryDirectory folder;
  const Training training;
  AdamW adamw(training.parameters());
  training.step(adamw);
  std::vector<TensorDict> of_ranks;
  std::vector<at::Tensor> drawn;
  for (const std::uint64_t seed : {5, 6, 7}) {
    torch::manual_seed(seed);
    of_ranks.push_back(of_this_process().front());
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

TEST_CASE("training state: an optimizer that is not known cannot be saved") {
  const TemporaryDirectory folder;
  const Training training;
  torch::optim::RMSprop rmsprop(training.parameters());
  training.step(rmsprop);
  CHECK(code_of([&] {
          save_training_state(folder.path(), rmsprop, training.names, kPosition, of_this_process());
        }) == "checkpoint.unknown-optimizer");
}

TEST_CASE("checkpoints: listed by step, partial and foreign folders left out") {
  const TemporaryDirectory folder;
  for (const char* name : {"checkpoint-10", "checkpoint-9", "checkpoint-200", "checkpoint-x",
                           ".checkpoint-300.partial-77", "checkpoint--1", "logs"}) {
    fs::create_directory(folder.path() / name);
  }
  std::vector<std::string> names;
  for (const fs::path& each : checkpoints(folder.path())) names.push_back(each.filename());
  CHECK(names == std::vector<std::string>{"checkpoint-9", "checkpoint-10", "checkpoint-200"});
  CHECK(last_checkpoint(folder.path()).empty());  // none is complete
  for (const char* name : {"checkpoint-9", "checkpoint-10"})
    write_file_atomically(folder.path() / name / "trainer_state.json", "{}");
  CHECK(last_checkpoint(folder.path()).filename() == "checkpoint-10");
  CHECK(last_checkpoint(folder.path() / "nowhere").empty());
}

TEST_CASE("checkpoints: rotation deletes the oldest and never the one to keep") {
  const TemporaryDirectory folder;
  for (int step = 1; step <= 5; ++step)
    fs::create_directory(folder.path() / str("checkpoint-", step));
  rotate_checkpoints(folder.path(), 2, folder.path() / "checkpoint-1");
  std::vector<std::string> names;
  for (const fs::path& each : checkpoints(folder.path())) names.push_back(each.filename());
  CHECK(names == std::vector<std::string>{"checkpoint-1", "checkpoint-5"});
}
