#include "hasten/data/detail/pack.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/data/example.h>

#include "hasten/formats/detail/tensor_dict.h"
#include "unit/code_of.h"

namespace data_pack_test {

namespace game {

struct Move {
  at::Tensor board;
  std::vector<std::string> names;
  int number = 0;
};
template <class F>
void visit_parts(Move& move, F&& f) {
  f(move.board);
  f(move.names);
  f(move.number);
}

struct Unknown {
  at::Tensor board;
  int number;
};
template <class F>
void visit_tensors(Unknown& batch, F&& f) {
  f(batch.board);
}

struct DataAndMore {
  at::Tensor data, target, more;
  std::optional<double> rating;
  enum class Colour { white, black } colour = Colour::white;
  std::array<std::int64_t, 2> clocks = {};
};

class Hidden {
 public:
  Hidden() = default;
  at::Tensor data, target, more;
};

}  // namespace game

using namespace hasten;

TEST_CASE("pack: tensors of every kind arrive unchanged") {
  const TensorDict sent = {
      {"numbers", at::arange(12, at::kLong).view({3, 4})},
      {"halves", at::randn({5}).to(at::kBFloat16)},
      {"flags", at::rand({7}) > 0.5},
      {"turned", at::randn({3, 4}).t()},
      {"scalar", at::scalar_tensor(2.5, at::kDouble)},
      {"empty", at::empty({0, 3})},
      {"complex", at::conj(at::randn({3}, at::kComplexFloat))},
      {"undefined", at::Tensor()},
      {"last", at::full({2}, 7, at::kByte)},
  };
  const auto got = unpack<TensorDict>(pack(sent));
  REQUIRE(got.size() == sent.size());
  for (const auto& [name, tensor] : sent) {
    CAPTURE(name);
    const at::Tensor& other = got.at(name);
    REQUIRE(other.defined() == tensor.defined());
    if (!tensor.defined()) continue;
    CHECK((other.scalar_type() == tensor.scalar_type()));
    CHECK(at::equal(other, tensor));
    if (tensor.numel() > 0) CHECK(reinterpret_cast<std::uintptr_t>(other.data_ptr()) % 64 == 0);
  }
}

TEST_CASE("pack: strings, numbers and containers of them arrive unchanged") {
  using Batch = std::pair<std::map<std::string, std::vector<std::string>>, std::vector<double>>;
  const Batch sent = {{{"text", {"one", "", std::string("a\0b", 3)}}, {"none", {}}}, {1.5, -0.0}};
  CHECK((unpack<Batch>(pack(sent)) == sent));
  const std::vector<std::int64_t> numbers = {1, -2};
  CHECK((unpack<std::vector<std::int64_t>>(pack(numbers)) == numbers));
  const std::vector<bool> flags = {true, false};
  CHECK((unpack<std::vector<bool>>(pack(flags)) == flags));
}

TEST_CASE("pack: a custom type and torch::data's examples arrive complete") {
  const game::Move sent{at::ones({2, 2}), {"white", "black"}, 42};
  const auto got = unpack<std::vector<game::Move>>(pack(std::vector<game::Move>(2, sent)));
  REQUIRE(got.size() == 2);
  CHECK(at::equal(got[1].board, sent.board));
  CHECK((got[1].names == sent.names));
  CHECK(got[1].number == 42);
  const torch::data::Example<> example(at::ones({2}), at::zeros({1}));
  const auto same = unpack<torch::data::Example<>>(pack(example));
  CHECK(at::equal(same.data, example.data));
  CHECK(at::equal(same.target, example.target));
}

TEST_CASE("pack: nested tuples, optionals, maps and plain structs arrive unchanged") {
  using Batch = std::tuple<std::unordered_map<std::string, std::optional<std::string>>,
                           std::array<std::vector<double>, 2>, std::optional<int>>;
  const Batch sent = {{{"a", "text"}, {"b", std::nullopt}}, {{{1.5}, {}}}, 7};
  CHECK((unpack<Batch>(pack(sent)) == sent));
  game::DataAndMore more{
      at::ones({1}), at::zeros({2}), at::full({3}, 3.0), 2.5, game::DataAndMore::Colour::black,
      {4, 5}};
  const auto all =
      unpack<std::vector<game::DataAndMore>>(pack(std::vector<game::DataAndMore>{{}, more}));
  REQUIRE(all.size() == 2);
  CHECK(!all[0].data.defined());
  CHECK(!all[0].rating.has_value());
  CHECK(at::equal(all[1].target, more.target));
  CHECK(at::equal(all[1].more, more.more));
  CHECK(all[1].rating == 2.5);
  CHECK((all[1].colour == more.colour));
  CHECK((all[1].clocks == more.clocks));
  const torch::data::TensorExample example(at::ones({2}));
  CHECK(at::equal(unpack<torch::data::TensorExample>(pack(example)).data, example.data));
}

TEST_CASE("pack: a type that would arrive only in part is refused") {
  static_assert(PackableBatch<game::Move>);
  static_assert(!PackableBatch<game::Unknown>);  // its number would be lost
  static_assert(!PackableBatch<game::Hidden>);   // and members beside data and target
  static_assert(!PackableBatch<std::vector<game::Unknown>>);
  static_assert(!PackableBatch<void*>);
  const at::Tensor sparse = at::eye(3).to_sparse();
  CHECK(code_of([&] { pack(sparse); }) == "data.carry");
}

TEST_CASE("pack: the tensors of a batch with other members are reached") {
  std::pair<TensorDict, std::vector<std::string>> batch = {{{"a", at::ones({1})}}, {"text"}};
  int count = 0;
  for_each_tensor(batch, [&](at::Tensor& tensor) {
    tensor = at::zeros({1});
    ++count;
  });
  CHECK(count == 1);
  CHECK(batch.first.at("a").item<double>() == 0);
  game::Unknown known_tensors{at::ones({1}), 1};
  for_each_tensor(known_tensors, [&](at::Tensor&) { ++count; });
  CHECK(count == 2);
}

}  // namespace data_pack_test
