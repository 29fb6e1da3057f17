#include "commands/plot_options.h"

#include <doctest/doctest.h>

#include "unit/code_of.h"

namespace plot_options_test {

using namespace hasten;
using Texts = std::vector<std::string>;

TEST_CASE("hasten plot: runs and options are read") {
  const PlotCommand run = parse_plot({"out", "b/metrics.csv", "--smoothing", "0.6", "--log_scale",
                                      "--curves", "train/loss", "eval/loss", "--output=a.html"});
  CHECK(run.runs == Texts{"out", "b/metrics.csv"});
  CHECK(run.curves == Texts{"train/loss", "eval/loss"});
  CHECK(run.output == "a.html");
  CHECK(run.smoothing == 0.6);
  CHECK(run.log_scale);
  CHECK(parse_plot({"out"}).output == "plot.html");
  CHECK(parse_plot({"out", "--help"}).help);
}

TEST_CASE("hasten plot: invalid arguments are errors") {
  CHECK(code_of([] { parse_plot({}); }) == "config.missing");
  CHECK(code_of([] { parse_plot({"out", "--smoothing", "1"}); }) == "config.out-of-range");
  CHECK(code_of([] { parse_plot({"out", "--smoothin", "0"}); }) == "config.unknown-key");
}

}  // namespace plot_options_test
