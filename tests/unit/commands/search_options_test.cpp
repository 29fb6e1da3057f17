#include "commands/search_options.h"

#include "unit/options/support.h"

namespace commands_search_options_test {

using namespace hasten;
using namespace hasten::test;

namespace {

SearchPlan plan_of_space(const std::string& text) {
  const TemporaryFile space("space.yaml", text);
  return plan_search(parse_search({space.path(), "--n_trials", "3", "--", "train", "--model",
                                   "bert-base", "--data", "dummy", "--eval_data", "dummy"}),
                     {});
}

}  // namespace

TEST_CASE("search options: bounds of whole numbers may be large") {
  const SearchPlan plan = plan_of_space(
      "max_steps: {int: [1000, 100000]}\n"
      "seed: {log_int: [1, 1000000]}\n"
      "num_train_epochs: {int: [1, 200000]}\n"
      "learning_rate: {uniform: [1e-7, 1e-3]}\n");
  CHECK(plan.proposed.size() == 3);
  CHECK(contains(error_of([] { plan_of_space("max_steps: {int: [1000, 1e18]}\n"); }).text,
                 "integers of at most 2^53"));
  CHECK(contains(error_of([] { plan_of_space("dummy_rows: {int: [-100000, 9]}\n"); }).text,
                 "got '-100000', expected a whole number of at least 1"));
}

TEST_CASE("search options: an empty text and an unset value are read back as they are") {
  const Texts flags =
      flags_of_parameters({{"optim_args", std::string()}, {"max_grad_norm", config::Value{}}});
  CHECK(flags == Texts{"--optim_args=", "--max_grad_norm=none"});
}

TEST_CASE("search options: an option of the search after -- is reported with its place") {
  const TemporaryFile space("space.yaml", "learning_rate: {uniform: [1e-5, 1e-3]}\n");
  const auto refused = [&](const std::string& option) {
    return error_of([&] {
      plan_search(parse_search({space.path(), "--", "train", "--model", "bert-base", "--data",
                                "dummy", "--eval_data", "dummy", option, "3"}),
                  {});
    });
  };
  CHECK(refused("--n_trials").text ==
        "unknown argument --n_trials of hasten train. Hint: options of the search come before --: "
        "hasten search SPACE.yaml --n_trials ... -- train ARGUMENT...");
  CHECK(contains(refused("--n-jobs=2").text, "come before --"));
  CHECK(refused("--seed").code == "no error");  // also an option of hasten train
  CHECK(contains(refused("--lerning_rate").text, "did you mean"));
}

}  // namespace commands_search_options_test
