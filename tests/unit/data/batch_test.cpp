#include "hasten/data/batch.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/data/example.h>

#include <memory>
#include <string>

#include "hasten/formats/detail/tensor_dict.h"

namespace data_batch_test {

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

// A struct without a function for its tensors.
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

// A class whose members cannot be enumerated.
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
// A member without a default value hides the members after it.
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

// The number of tensors that are reached, each by a mutable reference.
template <class Batch>
int count_reached(Batch& batch) {
  int count = 0;
  for_each_tensor(batch, [&](at::Tensor& tensor) {
    tensor = at::ones({1});
    ++count;
  });
  return count;
}

template <class Batch>
int count_tensors(Batch batch) {
  int count = 0;
  visit_tensors(batch, [&](at::Tensor& tensor) {
    tensor = at::ones({1});
    ++count;
  });
  CHECK(count_reached(batch) == count);
  return count;
}

}  // namespace

TEST_CASE("batch: tensors of usual types and of types with their own function are reached") {
  CHECK(count_tensors(at::Tensor()) == 1);
  CHECK(count_tensors(TensorDict{{"a", {}}, {"b", {}}}) == 2);
  CHECK(count_tensors(std::vector<at::Tensor>(3)) == 3);
  CHECK(count_tensors(std::pair<at::Tensor, std::vector<TensorDict>>{{}, {{{"a", {}}}, {}}}) == 2);
  CHECK(count_tensors(torch::data::Example<>(at::Tensor(), at::Tensor())) == 2);
  CHECK(count_tensors(torch::data::TensorExample(at::Tensor())) == 1);
  CHECK(count_tensors(
            torch::data::Example<std::vector<at::Tensor>, void>(std::vector<at::Tensor>(2))) == 2);
  CHECK(count_tensors(std::tuple<at::Tensor, at::Tensor, TensorDict>{{}, {}, {{"a", {}}}}) == 3);
  CHECK(count_tensors(std::array<at::Tensor, 3>()) == 3);
  CHECK(count_tensors(std::optional<at::Tensor>()) == 0);
  CHECK(count_tensors(std::optional(std::pair<at::Tensor, at::Tensor>())) == 2);
  CHECK(count_tensors(std::unordered_map<int, at::Tensor>{{1, {}}, {2, {}}}) == 2);
  CHECK(count_tensors(std::unordered_map<std::string, std::tuple<std::array<at::Tensor, 2>>>{
            {"a", {}}}) == 2);
  CHECK(count_tensors(game::Move{}) == 2);
  CHECK(count_tensors(std::vector<game::Move>(2)) == 4);
  CHECK(count_tensors(game::Twelve{}) == 12);
  torch::data::Example<> example{at::Tensor(), at::Tensor()};
  visit_tensors(example, [](at::Tensor& tensor) { tensor = at::ones({1}); });
  CHECK(example.target.defined());
}

TEST_CASE("batch: plain structs are searched, whatever else they hold") {
  game::Game game;
  game.comment.emplace();
  game.moves.resize(2);
  CHECK(count_reached(game) == 3 + 1 + 2 + 4);
  for (const at::Tensor& tensor : {game.data, game.target, game.weight, *game.comment,
                                   game.clocks[0], game.clocks[1], game.moves[1].piece})
    CHECK(tensor.defined());
  game::Side side;
  CHECK(count_reached(side) == 1);
  CHECK(side.pieces.defined());
  game::Tree tree{{}, {{}, {{}, {{}}}}};
  CHECK(count_reached(tree) == 4);
}

TEST_CASE("batch: tensors beside members of unknown types are reached") {
  std::tuple<at::Tensor, std::string, std::shared_ptr<int>, int> batch;
  CHECK(count_reached(batch) == 1);
  CHECK(std::get<0>(batch).defined());
  std::vector<bool> flags = {true};
  CHECK(count_reached(flags) == 0);
}

TEST_CASE("batch: types with tensors differ from types without") {
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

TEST_CASE("batch: structs whose members cannot be enumerated are recognized") {
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

}  // namespace data_batch_test
