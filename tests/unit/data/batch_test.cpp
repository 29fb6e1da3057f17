#include "hasten/data/batch.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/data/example.h>

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

}  // namespace game

using namespace hasten;

namespace {

template <class Batch>
int tensors_in(Batch batch) {
  int count = 0;
  visit_tensors(batch, [&](at::Tensor& tensor) {
    tensor = at::ones({1});
    ++count;
  });
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
  CHECK(tensors_in(game::Move{}) == 2);
  CHECK(tensors_in(std::vector<game::Move>(2)) == 4);
  torch::data::Example<> example{at::Tensor(), at::Tensor()};
  visit_tensors(example, [](at::Tensor& tensor) { tensor = at::ones({1}); });
  CHECK(example.target.defined());
}

TEST_CASE("batch: a type without tensors is told from one with them") {
  static_assert(TensorBatch<TensorDict>);
  static_assert(TensorBatch<std::pair<at::Tensor, game::Move>>);
  static_assert(!TensorBatch<int>);
  static_assert(!TensorBatch<std::vector<std::int64_t>>);
  static_assert(!TensorBatch<std::pair<at::Tensor, int>>);
}
