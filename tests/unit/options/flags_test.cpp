#include "options/sources.h"
#include "unit/options/support.h"

namespace options_flags_test {

using namespace hasten;
using namespace hasten::test;

TEST_CASE("flags: values follow a space or an equals sign, and '-' means '_'") {
  const auto run =
      parse_with_model({"--learning_rate", "3e-5", "--max-steps=20", "--num-train-epochs", "1.5"});
  CHECK(run.arguments.learning_rate == 3e-5);
  CHECK(run.arguments.max_steps == 20);
  CHECK(run.arguments.num_train_epochs == 1.5);
}

TEST_CASE("flags: a negative number is a value") {
  CHECK(parse_with_model({"--max_steps", "-1"}).arguments.max_steps == -1);
}

TEST_CASE("flags: a boolean needs no value, accepts a truth value, or is negated") {
  CHECK(parse_with_model({"--bf16"}).arguments.bf16);
  CHECK(parse_with_model({"--bf16", "true", "--seed", "1"}).arguments.bf16);
  CHECK(parse_with_model({"--bf16", "--seed", "1"}).arguments.bf16);
  CHECK_FALSE(parse_with_model({"--bf16", "false"}).arguments.bf16);
  CHECK_FALSE(parse_with_model({"--bf16=0"}).arguments.bf16);
  CHECK_FALSE(parse_with_model({"--bf16", "--no_bf16"}).arguments.bf16);
  CHECK_FALSE(parse_with_model({"--no-dataloader-pin-memory"}).arguments.dataloader_pin_memory);
  CHECK(parse_with_model({"--disable_tqdm"}).arguments.disable_tqdm == true);
  CHECK_FALSE(parse_with_model({"--disable_tqdm", "none"}).arguments.disable_tqdm.has_value());
}

TEST_CASE("flags: the last of several wins") {
  const auto run = parse_with_model({"--seed", "1", "--seed=2", "--bf16", "--bf16", "no"});
  CHECK(run.arguments.seed == 2);
  CHECK_FALSE(run.arguments.bf16);
}

TEST_CASE("flags: a list accepts commas, several arguments, or both") {
  const Texts expected = {"a", "b", "c"};
  CHECK(parse_with_model({"--label_names", "a,b,c"}).arguments.label_names == expected);
  CHECK(parse_with_model({"--label_names", "a", "b", "c", "--seed", "1"}).arguments.label_names ==
        expected);
  CHECK(parse_with_model({"--label_names=a,b,c"}).arguments.label_names == expected);
  CHECK(parse_with_model({"--label_names", "a, b", "c"}).arguments.label_names == expected);
}

TEST_CASE("flags: a value may begin with one dash and contain equals signs") {
  CHECK(parse_with_model({"--output_dir", "-x"}).arguments.output_dir == "-x");
  CHECK(parse_with_model({"--run_name=a=b"}).arguments.run_name == "a=b");
  const auto kwargs = parse_with_model(
      {"--lr_scheduler_type", "polynomial", "--lr_scheduler_kwargs", "power=2,lr_end=0"});
  CHECK(kwargs.arguments.lr_scheduler_kwargs == Kwargs{{"power", 2}, {"lr_end", 0}});
}

TEST_CASE("flags: an empty value is a value") {
  CHECK(parse_with_model({"--text_pair_column="}).options.text_pair_column == "");
}

TEST_CASE("flags: help is shown despite mistakes in other flags") {
  CHECK(parse({"--lerning_rate", "3", "--help"}).action == TrainAction::help);
  CHECK(parse({"-h"}).action == TrainAction::help);
  CHECK(parse({"--help", "markdown"}).action == TrainAction::help_markdown);
}

TEST_CASE("flags: a list that keeps commas does not split its items, and repeated flags append") {
  struct Commands {
    std::vector<std::string> run;
    bool quiet = false;
  } commands;
  config::OptionTable table;
  config::Describer d(table, commands);
  d("run", &Commands::run, "").keep_commas();
  d("quiet", &Commands::quiet, "");
  config::apply_flags(table, config::read_flags(table, {"--run", "a, b", "-c", "--quiet",
                                                        "--run=d,e", "--run", "f"}));
  CHECK(commands.run == Texts{"a, b", "-c", "d,e", "f"});
  CHECK(commands.quiet);
  CHECK(error_of([&] {
          config::read_flags(table, {"--run", "--quiet"});
        }).text == "--run has no value: expected one or more texts");
}

TEST_CASE("flags: the first operand is neither a flag nor a flag's value") {
  TrainOptions options;
  config::OptionTable table;
  describe(table, options);
  const auto index = [&](const Texts& arguments) {
    return config::operand_index(table, arguments);
  };
  CHECK(index({}) == 0);
  CHECK(index({"./train", "--model", "x"}) == 0);
  CHECK(index({"--model", "x", "./train"}) == 2);
  CHECK(index({"--model=x", "./train"}) == 1);
  CHECK(index({"--print_config", "./train"}) == 1);
  CHECK(index({"--print_config", "no", "./train"}) == 2);
  CHECK(index({"--unknown", "./train"}) == 1);
  CHECK(index({"--model", "x", "--", "--model"}) == 3);
  CHECK(index({"--model"}) == 1);
}

}  // namespace options_flags_test
