#include "hasten/data/batch.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/data/example.h>

#include <memory>
#include <string>

#include "hasten/formats/tensor_dict.h"

namespace game {

struct Move {
  at::Tensor board, piece;
  int number;
};
template <class F>
void visit_tensors(Move& move, F&& f) {
  f(move.board);
  f(move.piece);
}

// Without a function beside it.
struct Game {
  at::Tensor data, target, weight;
  std::string name;
  std::optional<at::Tensor> comment;
  at::Tensor clocks[2];
  int result = 0;
  std::vector<Move> moves;
};

enum class Colour { white, black };
struct Side {
  Colour colour = Colour::white;
  std::optional<std::int64_t> rating;
  std::unique_ptr<int> seat;
  at::Tensor pieces;
};

// With members that nobody else knows.
class Hidden {
 public:
  Hidden() = default;
  at::Tensor data, target, weight;
};
struct Longer : torch::data::Example<> {
  at::Tensor weight;
};
struct Wide {
  at::Tensor a, b, c, d, e, f, g, h, i, j, k, l, m;
};
struct Twelve {
  at::Tensor a, b, c, d, e, f, g, h, i, j, k, l;
};
struct Referring {
  at::Tensor& board;
  at::Tensor piece;
};
// One member has no default value, and hides what comes after it.
struct NoDefault {
  explicit NoDefault(int) {}
};
struct Late {
  at::Tensor board;
  NoDefault none;
  at::Tensor piece;
};
struct Tree {
  at::Tensor value;
  std::vector<Tree> children;
};

}  // namespace game

using namespace hasten;

namespace {

// Tensors that are reached, each by a reference that can be written to.
template <class Batch>
int reached_in(Batch& batch) {
  int count = 0;
  for_each_tensor(batch, [&](at::Tensor& tensor) {
    tensor = at::ones({1});
    ++count;
  });
  return count;
}

template <class Batch>
int tensors_in(Batch batch) {
  int count = 0;
  visit_tensors(batch, [&](at::Tensor& tensor) {
    tensor = at::ones({1});
    ++count;
  });
  CHECK(reached_in(batch) == count);
  return count;
}

}  // namespace

TEST_CASE(
    "batch: the tensors of every usual type are reached, and those of a type with its own "
    "function") {
  CHECK(tensors_in(at::Tensor()) == 1);
  CHECK(tensors_in(TensorDict{{"a", {}}, {"b", {}}}) == 2);
  CHECK(tensors_in(std::vector<at::Tensor>(3)) == 3);
  CHECK(tensors_in(std::pair<at::Tensor, std::vector<TensorDict>>{{}, {{{"a", {}}}, {}}}) == 2);
  CHECK(tensors_in(torch::data::Example<>(at::Tensor(), at::Tensor())) == 2);
  CHECK(tensors_in(torch::data::TensorExample(at::Tensor())) == 1);
  CHECK(tensors_in(
            torch::data::Example<std::vector<at::Tensor>, void>(std::vector<at::Tensor>(2))) == 2);
  CHECK(tensors_in(std::tuple<at::Tensor, at::Tensor, TensorDict>{{}, {}, {{"a", {}}}}) == 3);
  CHECK(tensors_in(std::array<at::Tensor, 3>()) == 3);
  CHECK(tensors_in(std::optional<at::Tensor>()) == 0);
  CHECK(tensors_in(std::optional(std::pair<at::Tensor, at::Tensor>())) == 2);
  CHECK(tensors_in(std::unordered_map<int, at::Tensor>{{1, {}}, {2, {}}}) == 2);
  CHECK(tensors_in(std::unordered_map<std::string, std::tuple<std::array<at::Tensor, 2>>>{
            {"a", {}}}) == 2);
  CHECK(tensors_in(game::Move{}) == 2);
  CHECK(tensors_in(std::vector<game::Move>(2)) == 4);
  CHECK(tensors_in(game::Twelve{}) == 12);
  torch::data::Example<> example{at::Tensor(), at::Tensor()};
  visit_tensors(example, [](at::Tensor& tensor) { tensor = at::ones({1}); });
  CHECK(example.target.defined());
}

TEST_CASE("batch: plain structs are looked into, whatever else they hold") {
  game::Game game;
  game.comment.emplace();
  game.moves.resize(2);
  CHECK(reached_in(game) == 3 + 1 + 2 + 4);
  for (const at::Tensor& tensor : {game.data, game.target, game.weight, *game.comment,
                                   game.clocks[0], game.clocks[1], game.moves[1].piece})
    CHECK(tensor.defined());
  game::Side side;
  CHECK(reached_in(side) == 1);
  CHECK(side.pieces.defined());
  game::Tree tree{{}, {{}, {{}, {{}}}}};
  CHECK(reached_in(tree) == 4);
}

TEST_CASE("batch: tensors beside what is not known are reached") {
  std::tuple<at::Tensor, std::string, std::shared_ptr<int>, int> batch;
  CHECK(reached_in(batch) == 1);
  CHECK(std::get<0>(batch).defined());
  std::vector<bool> flags = {true};
  CHECK(reached_in(flags) == 0);
}

TEST_CASE("batch: a type without tensors is told from one with them") {
  static_assert(TensorBatch<TensorDict>);
  static_assert(TensorBatch<std::pair<at::Tensor, game::Move>>);
  static_assert(TensorBatch<torch::data::TensorExample>);
  static_assert(TensorBatch<std::tuple<at::Tensor, std::array<at::Tensor, 2>>>);
  static_assert(!TensorBatch<int>);
  static_assert(!TensorBatch<std::vector<std::int64_t>>);
  static_assert(!TensorBatch<std::pair<at::Tensor, int>>);
  static_assert(!TensorBatch<std::tuple<>>);
  static_assert(!TensorBatch<game::Game>);
  static_assert(!TensorBatch<game::Tree>);
}

TEST_CASE("batch: structs whose members cannot be seen are known as such") {
  using hasten::detail::has_unreachable_members;
  static_assert(has_unreachable_members<game::Hidden>());  // not only data and target
  static_assert(has_unreachable_members<game::Longer>());
  static_assert(has_unreachable_members<game::Wide>());
  static_assert(has_unreachable_members<game::Referring>());
  static_assert(has_unreachable_members<game::Late>());
  static_assert(has_unreachable_members<std::vector<std::pair<int, game::Wide>>>());
  static_assert(!has_unreachable_members<game::Twelve>());
  static_assert(!has_unreachable_members<game::Move>());
  static_assert(!has_unreachable_members<game::Game>());
  static_assert(!has_unreachable_members<game::Side>());
  static_assert(!has_unreachable_members<game::Tree>());
  static_assert(!has_unreachable_members<torch::data::TensorExample>());
  static_assert(!has_unreachable_members<std::vector<std::shared_ptr<game::Wide>>>());
  static_assert(!has_unreachable_members<at::Tensor>());
  static_assert(!has_unreachable_members<std::string>());
}
