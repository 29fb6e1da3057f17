#include "commands/command_operands.h"

#include <doctest/doctest.h>

#include "commands/diff_options.h"
#include "commands/inspect_options.h"
#include "commands/plot_options.h"
#include "commands/weights_options.h"
#include "unit/code_of.h"

namespace commands_command_operands_test {

using namespace hasten;
using Texts = std::vector<std::string>;

TEST_CASE("operands: they may follow the options") {
  const PlotCommand plot = parse_plot({"--output", "a.html", "out", "--log_scale", "b.csv"});
  CHECK(plot.runs == Texts{"out", "b.csv"});
  CHECK(plot.output == "a.html");
  CHECK(plot.log_scale);

  const VerifyCommand verify = parse_verify({"--from", "4", "out"});
  CHECK(verify.run == "out");
  CHECK(verify.from == 4);
  const DiffCommand diff = parse_diff({"a", "--from=4", "b"});
  CHECK(diff.a == "a");
  CHECK(diff.b == "b");
  CHECK(diff.from == 4);

  const MergeWeightsCommand merge = parse_merge_weights({"--max-shard-size", "5kB", "a", "b"});
  CHECK(merge.folder == "a");
  CHECK(merge.target == "b");
  CHECK(merge.max_shard_size == 5000);
}

TEST_CASE("operands: only a truth value is the value of a boolean option") {
  for (const Texts& arguments :
       {Texts{"--allow_pickle", "a.bin", "b"}, Texts{"a.bin", "--allow_pickle", "b"},
        Texts{"--allow_pickle", "true", "a.bin", "b"}}) {
    const ConvertCommand run = parse_convert(arguments);
    CHECK(run.allow_pickle);
    CHECK(run.from == "a.bin");
    CHECK(run.to == "b");
  }
  CHECK_FALSE(parse_convert({"--allow_pickle", "no", "a.bin", "b"}).allow_pickle);
}

TEST_CASE("operands: a list takes every argument up to the next option or to --") {
  const PlotCommand plot =
      parse_plot({"out", "--curves", "train/loss", "eval/loss", "--", "b", "--c"});
  CHECK(plot.runs == Texts{"out", "b", "--c"});
  CHECK(plot.curves == Texts{"train/loss", "eval/loss"});
  const InspectCommand inspect = parse_inspect({"--namespaces", "a", "b", "--json", "x.pt2"});
  CHECK(inspect.file == "x.pt2");
  CHECK(inspect.namespaces == Texts{"a", "b"});
  CHECK(code_of([] { parse_plot({"--curves", "train/loss", "out"}); }) == "config.missing");
}

TEST_CASE("operands: mistakes in options are reported, and not read as operands") {
  CHECK(code_of([] { parse_plot({"--outptu", "a.html", "out"}); }) == "config.unknown-key");
  CHECK(code_of([] { parse_plot({"out", "-o"}); }) == "config.unexpected-argument");
  CHECK(code_of([] { parse_plot({"out", "--output"}); }) == "config.missing-value");
  CHECK(code_of([] { parse_verify({"--from", "-4", "out"}); }) == "config.out-of-range");
}

}  // namespace commands_command_operands_test
