#include "hasten/search/detail/search_space.h"

#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "unit/code_of.h"

namespace search_search_space_test {

using namespace hasten;

namespace {

double number_of(const TrialParameters& parameters, std::size_t index) {
  return std::get<double>(parameters[index].second);
}

std::int64_t integer_of(const TrialParameters& parameters, std::size_t index) {
  return std::get<std::int64_t>(parameters[index].second);
}

std::string text_of(const TrialParameters& parameters) {
  std::string text;
  for (const auto& [name, value] : parameters) text += name + config::to_text(value) + " ";
  return text;
}

// The error message for a space file with this text, or "none".
std::string message_of(const std::string& text, const std::string& name = "space.yaml") {
  const TemporaryDirectory folder;
  const auto file = folder.path() / name;
  write_file_atomically(file, text);
  try {
    read_search_space(file.string());
  } catch (const Error& error) {
    const std::string message = error.code() + ": " + error.what();
    const auto at = message.find(folder.path().string());
    return at == std::string::npos
               ? message
               : message.substr(0, at) + message.substr(at + folder.path().string().size() + 1);
  }
  return "none";
}

}  // namespace

TEST_CASE("search space: random values are in their ranges") {
  SearchSpace space;
  space.uniform("a", -1, 2)
      .log_uniform("b", 1e-5, 1e-3)
      .integer("c", 8, 64, 8)
      .log_integer("d", 1, 16)
      .choice("e", {8, 16, 32})
      .uniform("f", 0, 0.2, 0.05);
  std::set<std::int64_t> integers, log_integers, choices;
  std::set<double> steps;
  int small = 0;
  for (std::int64_t trial = 0; trial < 2000; ++trial) {
    const TrialParameters values = space.random(42, trial);
    CHECK(number_of(values, 0) >= -1);
    CHECK(number_of(values, 0) <= 2);
    CHECK(number_of(values, 1) >= 1e-5);
    CHECK(number_of(values, 1) <= 1e-3);
    small += number_of(values, 1) < 1e-4;
    integers.insert(integer_of(values, 2));
    log_integers.insert(integer_of(values, 3));
    choices.insert(integer_of(values, 4));
    steps.insert(number_of(values, 5));
  }
  CHECK(small > 900);  // half of the values are small on a logarithmic scale
  CHECK(small < 1100);
  CHECK(integers == std::set<std::int64_t>{8, 16, 24, 32, 40, 48, 56, 64});
  CHECK(log_integers.size() == 16);
  CHECK(*log_integers.begin() == 1);
  CHECK(*log_integers.rbegin() == 16);
  CHECK(choices == std::set<std::int64_t>{8, 16, 32});
  CHECK(steps == std::set<double>{0, 0.05, 0.1, 0.15, 0.2});
}

TEST_CASE("search space: values depend on the seed, the trial and the position only") {
  SearchSpace one, two;
  one.log_uniform("a", 1e-5, 1e-3);
  two.log_uniform("a", 1e-5, 1e-3).uniform("b", 0, 1);
  CHECK(one.random(42, 7)[0] == two.random(42, 7)[0]);
  CHECK(one.random(42, 7) != one.random(43, 7));
  CHECK(one.random(42, 7) != one.random(42, 8));
  CHECK(config::to_text(one.random(42, 0)[0].second).size() <= 11);  // six digits
}

TEST_CASE("search space: a grid has each combination once, and the last parameter is fastest") {
  SearchSpace space;
  space.choice("a", {std::string("x"), std::string("y")})
      .integer("b", 1, 3)
      .uniform("c", 0, 1, 0.5);
  REQUIRE(space.grid_size() == 18);
  std::set<std::string> all;
  for (std::int64_t trial = 0; trial < 18; ++trial) all.insert(text_of(space.grid(trial)));
  CHECK(all.size() == 18);
  CHECK(number_of(space.grid(1), 2) == 0.5);
  CHECK(integer_of(space.grid(3), 1) == 2);
  CHECK(std::get<std::string>(space.grid(9)[0].second) == "y");
  CHECK(code_of([] { SearchSpace().log_uniform("a", 1, 2).grid_size(); }) == "search.space");
  CHECK(code_of([] { SearchSpace().integer("a", 1, 1'000'000).integer("b", 1, 2).grid_size(); }) ==
        "search.space");
}

TEST_CASE("search space: bad ranges and lists are errors") {
  const auto code = [](auto add) {
    return code_of([&] {
      SearchSpace space;
      add(space);
    });
  };
  CHECK(code([](SearchSpace& s) { s.uniform("a", 2, 1); }) == "search.space");
  CHECK(code([](SearchSpace& s) { s.uniform("a", 1, 1); }) == "search.space");
  CHECK(code([](SearchSpace& s) { s.uniform("a", 0, HUGE_VAL); }) == "search.space");
  CHECK(code([](SearchSpace& s) { s.uniform("a", 0, 1, -0.1); }) == "search.space");
  CHECK(code([](SearchSpace& s) { s.uniform("a", 0, 1, 2); }) == "search.space");
  CHECK(code([](SearchSpace& s) { s.log_uniform("a", 0, 1); }) == "search.space");
  CHECK(code([](SearchSpace& s) { s.integer("a", 0, 9, 0); }) == "search.space");
  CHECK(code([](SearchSpace& s) { s.choice("a", {}); }) == "search.space");
  CHECK(code([](SearchSpace& s) { s.choice("a", {config::Value()}); }) == "search.space");
  CHECK(code([](SearchSpace& s) { s.uniform("a", 0, 1).uniform("a", 0, 1); }) == "search.space");
  CHECK(code([](SearchSpace& s) { s.uniform("", 0, 1); }) == "search.space");
}

TEST_CASE("search space: a file is read") {
  const TemporaryDirectory folder;
  const auto file = folder.path() / "space.yaml";
  write_file_atomically(file,
                        "learning_rate: {log_uniform: [1e-5, 1e-3]}\n"
                        "warmup_ratio: {uniform: [0, 0.2], step: 0.05}\n"
                        "num_train_epochs:\n  int: [1, 4]\n"
                        "gradient_accumulation_steps: {log_int: [1, 16]}\n"
                        "max_steps: {choice: [100000, no]}\n"
                        "warmup_steps: {int: [0, 200000], step: 100000}\n");
  const SearchSpace space = read_search_space(file.string());
  REQUIRE(space.dimensions().size() == 6);
  CHECK(to_text(space.dimensions()[0]) == "{log_uniform: [1e-05, 0.001]}");
  CHECK(to_text(space.dimensions()[1]) == "{uniform: [0, 0.2], step: 0.05}");
  CHECK(to_text(space.dimensions()[2]) == "{int: [1, 4]}");
  CHECK(to_text(space.dimensions()[3]) == "{log_int: [1, 16]}");
  CHECK(to_text(space.dimensions()[4]) == "{choice: [100000, no]}");
  CHECK(to_text(space.dimensions()[5]) == "{int: [0, 200000], step: 100000}");
  CHECK(space.dimensions()[4].place == file.string() + ":6");
  const auto json = folder.path() / "space.json";
  write_file_atomically(json, R"({"learning_rate": {"log_uniform": [1e-5, 1e-3]}})");
  CHECK(to_text(read_search_space(json.string()).dimensions()[0]) ==
        "{log_uniform: [1e-05, 0.001]}");
}

TEST_CASE("search space: errors of a file name the line and the key") {
  CHECK(message_of("a: {uniform: [0, 1]}\nb: {uniform: [1, 0]}\n") ==
        "search.space: space.yaml:2: b: got {uniform: [1, 0]}, expected two finite numbers, the "
        "lower one first");
  CHECK(message_of("a: {unifrom: [0, 1]}\n").find("space.yaml:1: a.unifrom: got an unknown kind") !=
        std::string::npos);
  CHECK(message_of("a: {unifrom: [0, 1]}\n").find("did you mean uniform?") != std::string::npos);
  CHECK(message_of("a:\n  uniform: [0, x]\n") ==
        "search.space: space.yaml:2: a.uniform: got 'x', expected a number");
  CHECK(message_of("a: {int: [0, 1, 2]}\n") ==
        "search.space: space.yaml:1: a.int: got a list of 3, expected a list of two numbers. Hint: "
        "write [LOW, HIGH]");
  CHECK(message_of("a: [1, 2]\n").find("Hint: write {choice: [...]}") != std::string::npos);
  CHECK(message_of("a: {step: 1}\n").find("space.yaml:1: a: got no kind") != std::string::npos);
  CHECK(message_of("a: {choice: [1], uniform: [0, 1]}\n").find("a.uniform: got a second kind") !=
        std::string::npos);
  CHECK(message_of("a: {choice: [1], step: 1}\n").find("a.step: got a step of choice") !=
        std::string::npos);
  CHECK(message_of("a: {int: [1, 2.5]}\n").find("expected integers") != std::string::npos);
  CHECK(message_of("a: {choice: [1, [2]]}\n").find("a.choice: got a list in the list") !=
        std::string::npos);
  CHECK(message_of("a: {choice: [1]}\na: {choice: [2]}\n")
            .find("config.duplicate-key: space.yaml:2: a is given twice") == 0);
  CHECK(message_of("").find("search.space: space.yaml: got nothing") == 0);
  CHECK(message_of("{}").find("got an empty map") != std::string::npos);
  CHECK(message_of("a: {choice: [1\n").find("config.syntax: space.yaml:") == 0);
}

}  // namespace search_search_space_test
