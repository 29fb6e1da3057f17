#include "hasten/options/train_options.h"

#include "unit/options/support.h"

namespace commands_train_options_test {

using namespace hasten;
using namespace hasten::test;

TEST_CASE("train options: a run needs only a model and data") {
  const auto run = parse({"--model", "bert-large", "--data", "dummy"});
  CHECK(run.action == TrainAction::run);
  CHECK(run.options.model == "bert-large");
  CHECK(run.options.max_length == 512);
  CHECK(run.options.dummy_rows == 512);
  CHECK(run.arguments.do_train);
  CHECK_FALSE(run.arguments.do_eval);
  CHECK(run.notices.empty());
}

TEST_CASE("train options: a run trains unless only evaluation or prediction is requested") {
  const auto eval = parse({"--model", "m", "--eval_data", "a.tsv", "--do_eval"});
  CHECK_FALSE(eval.arguments.do_train);
  CHECK(eval.arguments.do_eval);
  CHECK_FALSE(parse({"--model", "m", "--eval_data", "a.tsv", "--do_predict"}).arguments.do_train);
  CHECK(
      parse_with_model({"--eval_data", "a.tsv", "--do_train", "--do_predict"}).arguments.do_train);
  CHECK(parse_with_model({"--do_eval", "false"}).arguments.do_train);
  // This is an example from the documentation. The Trainer gives a notice, and training continues.
  CHECK(parse_with_model({"--evaluation_strategy", "steps"}).arguments.do_train);
  CHECK(parse_with_model({"--eval_data", "a.tsv", "--eval_strategy", "epoch"}).arguments.do_train);
}

TEST_CASE("train options: options that an export has fixed cannot be changed") {
  CHECK(is_exported_model("folder/Model.PT2"));
  CHECK_FALSE(is_exported_model("model.pt2/config.json"));
  const Texts arguments = {"--model", "model.pt2", "--data", "rows.jsonl"};
  CHECK(parse(arguments).options.model == "model.pt2");
  for (const auto& [option, value] :
       {std::pair{"--num_labels", "3"}, std::pair{"--hidden_dropout", "0"},
        std::pair{"--attention_dropout", "0"}, std::pair{"--weights_dtype", "bfloat16"}}) {
    CAPTURE(option);
    Texts more = arguments;
    more.insert(more.end(), {option, value});
    const std::string expected = std::string(option).substr(2) + " cannot change an exported model";
    CHECK(contains(error_of([&] { parse(more); }).text, expected));
  }
}

TEST_CASE("train options: evaluation data is evaluated") {
  const auto run = parse_with_model({"--eval_data", "a.tsv"});
  CHECK(run.arguments.do_eval);
  CHECK(origin_in(run, "do_eval") == "derived from eval_data");
  CHECK_FALSE(parse_with_model({"--eval_data", "a.tsv", "--no_do_eval"}).arguments.do_eval);
}

TEST_CASE("train options: derived values name their source") {
  const auto run = parse_with_model(
      {"--eval_data", "a.tsv", "--eval_strategy", "steps", "--load_best_model_at_end"});
  CHECK(origin_in(run, "eval_steps") == "derived from logging_steps");
  CHECK(origin_in(run, "metric_for_best_model") == "derived from load_best_model_at_end");
  CHECK(origin_in(run, "greater_is_better") == "derived from metric_for_best_model");
  CHECK(origin_in(run, "do_train") == "derived from the command");
  CHECK(origin_in(run, "do_eval") == "derived from eval_strategy");
}

TEST_CASE("train options: a run that a signal stops saves a checkpoint unless it saves none") {
  CHECK(parse_with_model({}).arguments.enable_jit_checkpoint);
  CHECK(origin_in(parse_with_model({}), "enable_jit_checkpoint") == "derived from the command");
  CHECK_FALSE(parse_with_model({"--save_strategy", "no"}).arguments.enable_jit_checkpoint);
  CHECK_FALSE(
      parse_with_model({"--enable_jit_checkpoint", "false"}).arguments.enable_jit_checkpoint);
  CHECK(parse_with_model({"--save_strategy", "no", "--enable_jit_checkpoint"})
            .arguments.enable_jit_checkpoint);
}

TEST_CASE("train options: one file holds options of both kinds") {
  const TemporaryFile file("train.yaml",
                           "model: bert-base\ndata: dummy\ndummy_rows: 64\nmax_steps: 2\n");
  const auto run = parse({"--config_file", file.path()});
  CHECK(run.options.dummy_rows == 64);
  CHECK(run.arguments.max_steps == 2);
  CHECK(run.options.config_file == Texts{file.path()});
}

TEST_CASE("train options: the error for a missing file names it") {
  const auto caught = [](Texts arguments) {
    return error_of([&] {
      const TrainConfiguration run = parse(arguments);
      check_files(run.options, run.arguments.resume_from_checkpoint);
    });
  };
  CHECK(caught({"--model", "bert-base", "--data", "dummy"}).code == "no error");
  CHECK(caught({"--model", "bert-bse", "--data", "dummy"}).text ==
        "--model bert-bse: no such folder or file. Hint: did you mean the built-in bert-base?");
  CHECK(caught({"--model", "/nowhere", "--data", "dummy"}).exit_code == 4);
  CHECK(caught({"--model", "bert-base", "--data", "/nowhere/a.tsv"}).text ==
        "--data /nowhere/a.tsv: no such file");
  CHECK(contains(
      caught({"--model", "bert-base", "--data", "dummy", "--weights", "/n/m.safetensors"}).text,
      "--weights"));
  CHECK(
      contains(caught({"--model", "bert-base", "--data", "dummy", "--eval_data", "/n/a.csv"}).text,
               "--eval_data"));
  const auto resumed = [&](const char* from) {
    return caught({"--model", "bert-base", "--data", "dummy", "--resume_from_checkpoint", from});
  };
  CHECK(resumed("true").code == "no error");
  CHECK(contains(resumed("ture").text, "--resume_from_checkpoint ture: no such folder"));
}

}  // namespace commands_train_options_test
