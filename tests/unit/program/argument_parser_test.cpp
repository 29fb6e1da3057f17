#include "hasten/program/argument_parser.h"

#include "hasten/base/text.h"
#include "unit/options/support.h"
#include "unit/program/ended_process.h"

namespace program_argument_parser_test {

enum class Kind { lstm, gru };

}  // namespace program_argument_parser_test

template <>
struct hasten::Names<program_argument_parser_test::Kind> {
  static constexpr std::string_view text[] = {"lstm", "gru"};
};

namespace program_argument_parser_test {

using namespace hasten;
using namespace hasten::test;

namespace {

// The variables and the parser of a program.
struct Program {
  Program() {
    parser.add("data", data, "Read the episodes from this file.")
        .add("hidden", hidden, "Set the size of the hidden state.")
        .add("horizon", horizon, "Cut the episodes after this many steps.")
        .add("noise", noise, "Add noise of this size.")
        .add("joints", joints, "Use these joints.")
        .add("clip", clip, "Limit the actions to this value.")
        .add("augment", augment, "Change the episodes randomly.")
        .add("kind", kind, "Choose the kind of the cell.")
        .add(arguments);
  }
  ParsedArguments parse(Texts after_program, const config::Environment& environment = {}) {
    after_program.insert(after_program.begin(), "bin/train");
    return parser.parse(after_program, environment);
  }

  std::string data;
  int hidden = 64;
  std::int64_t horizon = 200;
  double noise = 0.1;
  std::vector<std::string> joints;
  std::optional<double> clip;
  bool augment = true;
  Kind kind = Kind::lstm;
  TrainingArguments arguments{.output_dir = "policy", .learning_rate = 1e-3};
  ArgumentParser parser{"Trains a policy."};
};

// Calls parse_or_report() in a child process, which ends with the exit code that the call returns,
// or with 77 if the program should run.
EndedProcess end_of(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "bin/train");
  return end_of_process([&] {
    Program program;
    return program.parser.parse_or_report(static_cast<int>(arguments.size()), arguments.data())
        .value_or(77);
  });
}

// Returns the line that begins so, or an empty text.
std::string line_in(const std::string& text, const std::string& start) {
  for (const std::string& line : split(text, '\n')) {
    if (starts_with(line, start)) return line;
  }
  return "";
}

}  // namespace

TEST_SUITE("program/argument_parser") {
  TEST_CASE("a program without arguments keeps its own defaults") {
    Program program;
    CHECK(program.parse({}).text.empty());
    CHECK(program.hidden == 64);
    CHECK(program.kind == Kind::lstm);
    CHECK(program.arguments.output_dir == "policy");
    CHECK(program.arguments.learning_rate == 1e-3);
  }

  TEST_CASE("flags set the program's options and the training arguments") {
    Program program;
    program.parse({"--data", "a.bin", "--hidden=32", "--horizon", "9", "--noise", "1e-2",
                   "--joints", "hip", "knee", "--clip", "2", "--no_augment", "--kind", "gru",
                   "--per-device-train-batch-size", "4", "--eval_strategy", "epoch"});
    CHECK(program.data == "a.bin");
    CHECK(program.hidden == 32);
    CHECK(program.horizon == 9);
    CHECK(program.noise == 1e-2);
    CHECK(program.joints == Texts{"hip", "knee"});
    CHECK(program.clip == 2.0);
    CHECK_FALSE(program.augment);
    CHECK(program.kind == Kind::gru);
    CHECK(program.arguments.per_device_train_batch_size == 4);
    CHECK(program.arguments.do_eval);  // derived from eval_strategy
    CHECK(program.arguments.learning_rate == 1e-3);
  }

  TEST_CASE("a flag overrides a variable, which overrides a file") {
    const TemporaryFile file("train.yaml", "hidden: 8\nhorizon: 8\nkind: gru\nlearning_rate: 8\n");
    Program program;
    program.parse({"--config_file", file.path(), "--hidden", "10"},
                  {{"HASTEN_HIDDEN", "9"}, {"HASTEN_HORIZON", "9"}});
    CHECK(program.hidden == 10);
    CHECK(program.horizon == 9);
    CHECK(program.kind == Kind::gru);
    CHECK(program.arguments.learning_rate == 8);
  }

  TEST_CASE("a null in a file means the program's default") {
    const TemporaryFile file("train.yaml", "hidden: null\nlearning_rate: null\nkind: null\n");
    Program program;
    program.parse({"--config_file", file.path()});
    CHECK(program.hidden == 64);
    CHECK(program.kind == Kind::lstm);
    CHECK(program.arguments.learning_rate == 1e-3);
  }

  TEST_CASE("errors name the option, the place and the most similar name") {
    const auto error = [](const Texts& arguments, const config::Environment& environment = {}) {
      return error_of([&] { Program().parse(arguments, environment); });
    };
    CHECK(contains(error({"--hiden", "3"}).text, "did you mean --hidden?"));
    CHECK(contains(error({"--lerning_rate", "3"}).text, "did you mean --learning_rate?"));
    CHECK(error({"--hidden", "many"}).code == "config.bad-value");
    CHECK(error({"--hidden", "3000000000"}).code == "config.out-of-range");
    CHECK(contains(error({"--kind", "grue"}).text, "did you mean gru?"));
    CHECK(error({"episodes.bin"}).code == "config.unexpected-argument");
    CHECK(error({"--bf16", "--fp16"}).code == "config.contradiction");
    CHECK(error({"--learning_rate", "-1"}).code == "config.out-of-range");
    CHECK(error({"--deepspeed", "x.json"}).code == "config.not-supported");
    CHECK(contains(error({}, {{"HASTEN_HIDDEN", "x"}}).text, "HASTEN_HIDDEN"));
    const TemporaryFile file("a.yaml", "print_config: true\n");
    CHECK(error({"--config_file", file.path()}).code == "config.unknown-key");
  }

  TEST_CASE("an option that is required must be set") {
    Program program;
    program.parser.require("data");
    const CaughtError error = error_of([&] { program.parse({"--hidden", "3"}); });
    CHECK(error.code == "config.missing");
    CHECK(contains(error.text, "--data"));
    CHECK(contains(error.text, "Read the episodes from this file."));
    program.parse({"--data", "a.bin"});
    CHECK(program.data == "a.bin");
  }

  TEST_CASE("names of options are checked when they are added") {
    Program program;
    const auto add = [&](const std::string& name) {
      std::string text;
      return error_of([&] { program.parser.add(name, text, "Help."); }).code;
    };
    CHECK(add("hidden") == "config.option-name");
    CHECK(add("seed") == "config.option-name");
    CHECK(add("config_file") == "config.option-name");
    CHECK(add("--size") == "config.option-name");
    CHECK(add("batch size") == "config.option-name");
    CHECK(add("") == "config.option-name");
    CHECK(error_of([&] { program.parser.add(program.arguments); }).code == "config.option-name");
    CHECK(error_of([&] { program.parser.require("size"); }).code == "config.option-name");
    CHECK(program.parse({"--hidden", "5"}).text.empty());  // the parser has not changed
    CHECK(program.hidden == 5);
  }

  TEST_CASE("the help has the program's options with their defaults") {
    Program program;
    const std::string help = program.parse({"--hidden", "x", "--help"}).text;
    CHECK(contains(help, "usage: train [--NAME VALUE ...]"));
    CHECK(contains(help, "Trains a policy."));
    CHECK(contains(help, "Set the size of the hidden state. [64]"));
    CHECK(contains(help, "One of lstm, gru. [lstm]"));
    CHECK(contains(help, "--learning_rate"));
    CHECK(contains(help, "[0.001]"));
  }

  TEST_CASE("--print_config returns every value with its origin") {
    Program program;
    const std::string text =
        program.parse({"--print_config", "--hidden", "32", "--eval_strategy", "epoch"}).text;
    CHECK(contains(line_in(text, "hidden: 32 "), "# --hidden"));
    CHECK(contains(line_in(text, "output_dir: policy "), "# default"));
    CHECK(contains(line_in(text, "do_eval: true "), "# derived from eval_strategy"));
    CHECK_FALSE(contains(text, "print_config"));
    const TemporaryFile file("again.yaml", text);
    Program again;
    again.parse({"--config_file", file.path()});
    CHECK(again.hidden == 32);
    CHECK(again.arguments.eval_strategy == IntervalStrategy::epoch);
  }

  TEST_CASE("parse_or_report prints an error or a requested text, and returns the exit code") {
    const EndedProcess bad = end_of({"--hiden", "3"});
    CHECK(bad.exit_code == 2);
    CHECK(starts_with(bad.output, "train: error[config.unknown-key]: unknown argument --hiden."));
    const EndedProcess help = end_of({"--help"});
    CHECK(help.exit_code == 0);
    CHECK(starts_with(help.output, "usage: train [--NAME VALUE ...]\n\nTrains a policy.\n\n"));
    const EndedProcess goes_on = end_of({"--hidden", "3", "--torch_compile"});
    CHECK(goes_on.exit_code == 77);
    CHECK(starts_with(goes_on.output, "train: note: --torch_compile is ignored"));
  }

  TEST_CASE("an argument without effect gives a notice") {
    Program program;
    const ParsedArguments parsed = program.parse({"--torch_compile", "true"});
    REQUIRE(parsed.notices.size() == 1);
    CHECK(contains(parsed.notices[0], "torch_compile"));
  }
}

}  // namespace program_argument_parser_test
