// The sum of embeddings and its sparse gradients.
#include <ATen/Version.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <doctest/doctest.h>
#include <time.h>
#include <torch/torch.h>

#include <algorithm>
#include <vector>

#include "autograd/operator_calls.h"
#include "hasten/base/error.h"
#include "hasten/ops/ops.h"
#include "unit/ops/operator_checks.h"

namespace ops_embedding_sum_test {

using namespace hasten;
using at::Tensor;
using namespace hasten::operator_checks;

TEST_CASE("ops: embedding_sum adds three tables, and its sparse gradient equals the dense one") {
  torch::manual_seed(11);
  const Tensor word = leaf({50, 12}), position = leaf({16, 12}), type = leaf({2, 12});
  const Tensor ids = at::randint(0, 50, {3, 10}), types = at::randint(0, 2, {3, 10});
  const Tensor positions = at::randint(0, 16, {3, 10});
  for (const Tensor& at_positions : {Tensor(), positions}) {
    const auto reference = [&] {
      return at::embedding(word, ids, 7) + at::embedding(type, types) +
             (at_positions.defined() ? at::embedding(position, at_positions)
                                     : position.slice(0, 0, 10));
    };
    check_same(ops::embedding_sum(word, position, type, ids, at_positions, types, 7, false),
               reference(), {word, position, type}, 1e-6);
    const Tensor weights = at::randn({3, 10, 12});
    const Tensor sparse =
        gradients(ops::embedding_sum(word, position, type, ids, at_positions, types, 7, true),
                  weights, {word})[0];
    const Tensor dense = gradients(reference(), weights, {word})[0];
    REQUIRE(sparse.is_sparse());
    CHECK(sparse.is_coalesced());
    CHECK(distance(sparse.to_dense(), dense) < 1e-6);
  }
}

TEST_CASE("ops: the error for an id outside the table names its row and position") {
  Tensor ids = at::zeros({2, 3}, at::kLong);
  ids[1][2] = 9;
  try {
    ops::embedding_sum(at::zeros({9, 4}), at::zeros({8, 4}), at::zeros({2, 4}), ids, {}, {}, -1,
                       false);
    FAIL("expected an error");
  } catch (const DataError& error) {
    CHECK(error.code() == "models.id-out-of-range");
    CHECK(std::string(error.what()) ==
          "input_ids, row 1 position 2 of the batch: got id 9, expected 0 to 8. Hint: use the "
          "tokenizer that belongs to the model");
  }
  CHECK_THROWS_AS(ops::embedding_sum(at::zeros({9, 4}), at::zeros({2, 4}), at::zeros({2, 4}),
                                     at::zeros({1, 3}, at::kLong), {}, {}, -1, false),
                  DataError);
}

TEST_CASE("ops: embedding_sum adds only the tables that are defined") {
  torch::manual_seed(22);
  const Tensor word = leaf({50, 12}), position = leaf({16, 12}), type = leaf({2, 12});
  const Tensor ids = at::randint(0, 50, {3, 10});
  check_same(ops::embedding_sum(word, {}, {}, ids, {}, {}, 7, false), at::embedding(word, ids, 7),
             {word}, 1e-6);
  check_same(ops::embedding_sum(word, position, {}, ids, {}, {}, -1, false),
             at::embedding(word, ids) + position.narrow(0, 0, 10), {word, position}, 1e-6);
  check_same(ops::embedding_sum(word, {}, type, ids, {}, {}, -1, false),
             at::embedding(word, ids) + type[0], {word, type}, 1e-6);
  const Tensor sparse = gradients(ops::embedding_sum(word, {}, {}, ids, {}, {}, 7, true),
                                  at::ones({3, 10, 12}), {word})[0];
  REQUIRE(sparse.is_sparse());
  CHECK(distance(sparse.to_dense(),
                 gradients(at::embedding(word, ids, 7), at::ones({3, 10, 12}), {word})[0]) < 1e-6);
}

TEST_CASE("ops: embedding_sum computes no gradient of a frozen table") {
  struct Scatters final : OperatorInterceptor {
    void call(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
              torch::jit::Stack* stack) override {
      if (op.schema().name() == "hasten::embedding_scatter") ++count;
      call_operator_kernel(op, keys, stack);
    }
    int count = 0;
  };
  const Tensor word = leaf({50, 12}), position = leaf({16, 12}), type = leaf({2, 12});
  const Tensor ids = at::randint(0, 50, {3, 10}), types = at::randint(0, 2, {3, 10}),
               positions = at::randint(0, 16, {3, 10});
  const auto scatters = [&](const std::vector<Tensor>& trained, bool has_position) {
    for (const Tensor& each : {word, position, type}) {
      each.set_requires_grad(std::any_of(trained.begin(), trained.end(),
                                         [&](const Tensor& one) { return one.is_same(each); }));
    }
    Scatters counter;
    const InterceptionScope scope(&counter);
    for (const Tensor& each :
         gradients(ops::embedding_sum(word, has_position ? position : Tensor(), type, ids,
                                      has_position ? positions : Tensor(), types, 7, false),
                   at::ones({3, 10, 12}), trained))
      CHECK(each.abs().sum().item<double>() > 0);
    return counter.count;
  };
  CHECK(scatters({word, position, type}, true) == 3);
  CHECK(scatters({position}, true) == 1);
  CHECK(scatters({type}, true) == 1);
  CHECK(scatters({type}, false) == 1);
  CHECK(scatters({word, type}, false) == 2);
}

}  // namespace ops_embedding_sum_test
