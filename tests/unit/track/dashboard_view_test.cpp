#include "track/dashboard_view.h"

#include <doctest/doctest.h>

#include <string>

namespace track_dashboard_view_test {

using namespace hasten;

namespace {

DashboardFigures figures_of_a_run() {
  DashboardFigures figures{.title = "out/sections",
                           .activity = "training",
                           .step = 300,
                           .max_steps = 400,
                           .epoch = 1.5,
                           .num_train_epochs = 2,
                           .seconds = 60,
                           .steps_made = 300,
                           .rows_per_step = 32,
                           .flops_per_second = 5e10,
                           .roof = 2e11};
  for (int step = 1; step <= 300; ++step) figures.step_loss.add(step, 1.0 / step);
  figures.metrics = {"loss", "eval_accuracy"};
  figures.logged["loss"].add(300, 0.25);
  figures.logged["eval_accuracy"].add(300, 0.844);
  figures.memory = {{"model_weights", 90'900'000}, {"gradients", 1'200'000}};
  figures.ranks = {{"node-a", 1.5, 938'000'000, 0}, {"node-b", 1.25, 940'000'000, 0}};
  return figures;
}

std::string text_of(const std::vector<ScreenLine>& lines) {
  std::string text;
  for (const ScreenLine& line : lines) {
    for (const StyledText& part : line) text += part.text;
    text += '\n';
  }
  return text;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("dashboard: it shows progress, rates, the share of the roof, memory and ranks") {
  const std::string text = text_of(dashboard_lines(figures_of_a_run(), {100, 30}, false, {}));
  for (const char* const part :
       {"out/sections", "75% | step 300/400 | 1:00, 0:20 left", "epoch 1.50 of 2",
        "5.00 steps/s | 160.0 rows/s",
        "25.0 % of the machine's roof (50.0 GFLOP/s of 200.0 GFLOP/s)", "eval_accuracy 0.844",
        "memory: model_weights 90.9 MB | gradients 1.20 MB",
        "rank 0: node-a | 1.50 cores | 938 MB in RAM", "rank 1: node-b", "q stop"}) {
    CAPTURE(part);
    CHECK(contains(text, part));
  }
}

TEST_CASE("dashboard: an evaluation has its own progress") {
  DashboardFigures figures = figures_of_a_run();
  figures.evaluated = 2;
  figures.to_evaluate = 8;
  CHECK(contains(text_of(dashboard_lines(figures, {100, 30}, false, {})), "25% | batch 2/8"));
}

TEST_CASE("dashboard: it never has more lines than the terminal") {
  for (int rows = 1; rows <= 40; ++rows) {
    CAPTURE(rows);
    const auto lines =
        dashboard_lines(figures_of_a_run(), {10, rows}, true, {"one", "two", "three"});
    CHECK(static_cast<int>(lines.size()) <= rows);
    CHECK(contains(text_of(lines), "q stop"));
  }
}

TEST_CASE("dashboard: messages are shown if the curves have room") {
  const DashboardFigures figures = figures_of_a_run();
  CHECK(contains(text_of(dashboard_lines(figures, {80, 24}, true, {"a warning"})), "a warning"));
  CHECK(!contains(text_of(dashboard_lines(figures, {80, 8}, true, {"a warning"})), "a warning"));
}

TEST_CASE("dashboard: a run without figures is shown") {
  const std::string text = text_of(dashboard_lines({}, {80, 24}, false, {}));
  CHECK(contains(text, "step 0/0"));
  CHECK(contains(text, "? left"));
}

}  // namespace track_dashboard_view_test
