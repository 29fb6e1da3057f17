// Losses that are read in each batch, in each step or when they are logged give the same results.
#include "trainer/loss_record.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/device/operator_graphs.h"
#include "unit/prepare/multiprocess_checks.h"

namespace trainer_loss_record_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Runs four steps with two rows in each process. The loss is `bad` in step 2 of rank 0, and NaN in
// step 4 of rank 1. Both ranks must report the same.
void run_four_steps(LossReading reading, double bad) {
  debug_launcher(
      [&] {
        Accelerator accelerator({.cpu = true});
        const Group& group = accelerator.group();
        std::vector<LossRecord::NonfiniteLosses> reported;
        LossRecord losses(
            {}, group, at::kCPU, reading,
            [&](const LossRecord::NonfiniteLosses& each) { reported.push_back(each); });
        for (std::int64_t step = 1; step <= 4; ++step) {
          double loss = static_cast<double>(step + group.rank());
          if (group.rank() == 0 && step == 2) loss = bad;
          if (group.rank() == 1 && step == 4) loss = std::nan("");
          losses.add(at::scalar_tensor(loss), 2);
          const at::Tensor sum = group.reduce(at::scalar_tensor(losses.step_sum(), at::kDouble));
          losses.close({.loss = sum.item<double>(), .items = 4}, step);
        }
        const LossRecord::LoggedLosses logged = losses.take_since_log(4);
        require(logged.nonfinite == 2, str(logged.nonfinite, " steps are not finite"));
        // The mean of the finite steps 1 and 3 is (1.5 + 3.5) / 2.
        require(std::abs(logged.loss - 2.5) < 1e-6, str("the mean is ", logged.loss));
        require(std::abs(losses.mean() - 2.5) < 1e-6, "the mean over all finite steps differs");
        require(!reported.empty() && reported.front().step == 2, "step 2 is not reported first");
      },
      2);
}

Group own_group() { return Accelerator({.cpu = true}).group(); }

// The record of a run in one process.
struct Run {
  explicit Run(LossReading reading, const TrainingArguments& args = {})
      : losses(args, own_group(), at::kCPU, reading,
               [this](const LossRecord::NonfiniteLosses& each) { reported.push_back(each); }) {}

  // Adds a step. `items_of_losses` has the loss and the number of items of each micro-batch.
  void step(std::int64_t number, const std::vector<std::pair<double, double>>& items_of_losses) {
    double items = 0;
    for (const auto& [loss, of_loss] : items_of_losses) {
      losses.add(at::scalar_tensor(loss), of_loss);
      items += of_loss;
    }
    losses.close({.loss = losses.step_sum(), .items = items}, number);
  }

  std::vector<LossRecord::NonfiniteLosses> reported;
  LossRecord losses;
};

// The numbers that a run of 12 steps logs, keeps in checkpoints and returns.
std::vector<double> figures_of(LossReading reading, bool filter) {
  Run run(reading, {.logging_nan_inf_filter = filter});
  std::vector<double> out;
  for (std::int64_t step = 1; step <= 12; ++step) {
    const double loss = step == 5 ? std::nan("") : step == 8 ? kInfinity : 1.0 / (2.0 + step);
    run.step(step, {{0.1 * step, 3}, {loss, 4}, {2.5, 1}});
    if (step == 6) {
      const LossPosition position = run.losses.position();
      out.insert(out.end(), {position.since_log.sum, double(position.since_log.nonfinite)});
    }
    if (step % 4 == 0) {
      const LossRecord::LoggedLosses logged = run.losses.take_since_log(step, DeferredScalar(step));
      out.insert(out.end(), {logged.loss, double(logged.nonfinite), logged.grad_norm});
      out.push_back(run.losses.latest());
    }
  }
  out.insert(out.end(), {run.losses.mean(), double(run.losses.nonfinite())});
  REQUIRE(run.reported.size() == 2);
  out.push_back(static_cast<double>(run.reported[0].step + 100 * run.reported[1].step));
  return out;
}

bool are_same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

}  // namespace

TEST_CASE("loss record: a step's loss is not finite if one process's share is not") {
  for (const LossReading reading :
       {LossReading::each_batch, LossReading::each_step, LossReading::at_logs}) {
    for (const double bad : {std::nan(""), kInfinity}) run_four_steps(reading, bad);
  }
}

TEST_CASE("loss record: losses have the same bits, whenever they are read") {
  for (const bool filter : {true, false}) {
    CAPTURE(filter);
    const std::vector<double> expected = figures_of(LossReading::each_batch, filter);
    for (const LossReading reading : {LossReading::each_step, LossReading::at_logs}) {
      const std::vector<double> got = figures_of(reading, filter);
      REQUIRE(got.size() == expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        CAPTURE(i);
        CHECK(are_same(got[i], expected[i]));
      }
    }
  }
}

TEST_CASE("loss record: the mean of a run counts what the log counts, also after a resume") {
  for (const LossReading reading :
       {LossReading::each_batch, LossReading::each_step, LossReading::at_logs}) {
    for (const bool filter : {true, false}) {
      CAPTURE(filter);
      const TrainingArguments args{.logging_nan_inf_filter = filter};
      Run run(reading, args), resumed(reading, args), none(reading, args);
      CHECK(none.losses.mean() == 0);
      run.step(1, {{std::nan(""), 2}});
      CHECK(std::isnan(run.losses.mean()));
      resumed.losses.restore(run.losses.position());
      for (Run* each : {&run, &resumed}) {
        CHECK(std::isnan(each->losses.mean()));
        each->step(2, {{3.0, 2}});
        each->step(3, {{5.0, 2}});
        CHECK(are_same(each->losses.mean(), filter ? 4 : std::nan("")));
        CHECK(are_same(each->losses.take_since_log(3).loss, filter ? 4 : std::nan("")));
        CHECK(each->losses.nonfinite() == 1);
      }
    }
  }
}

TEST_CASE("loss record: losses that are read together are reported together, with the first step") {
  Run run(LossReading::at_logs);
  for (std::int64_t step = 1; step <= 6; ++step)
    run.step(step, {{step >= 4 ? std::nan("") : 1.0, 2}});
  CHECK(run.reported.empty());
  run.losses.take_since_log(6);
  REQUIRE(run.reported.size() == 1);
  CHECK(run.reported[0].step == 4);
  CHECK(run.reported[0].count == 3);
  CHECK(std::isnan(run.reported[0].loss));
}

TEST_CASE("loss record: the sum of a window survives a reading and a checkpoint within it") {
  for (const LossReading reading :
       {LossReading::each_batch, LossReading::each_step, LossReading::at_logs}) {
    Run run(reading), resumed(reading);
    run.step(1, {{2.0, 3}});
    run.losses.add(at::scalar_tensor(0.5), 4);
    CHECK(run.losses.position().of_run.sum == 2);
    CHECK(run.losses.open_sum() == 2);
    resumed.losses.restore(run.losses.position());
    resumed.losses.restore_open_sum(run.losses.open_sum());
    for (Run* each : {&run, &resumed}) {
      each->step(2, {{0.75, 4}});
      CHECK(each->losses.take_since_log(2).loss == (2 + 5.0 / 4) / 2);
    }
  }
}

TEST_CASE("loss record: the link of a step needs its own loss, which is read for it") {
  Run run(LossReading::at_logs);
  run.step(1, {{2.0, 3}});
  run.step(2, {{3.0, 3}});
  CHECK(run.losses.latest() == 0);
  CHECK(run.losses.read_latest() == 3);
  CHECK(run.losses.take_since_log(2).loss == 2.5);
}

TEST_CASE("loss record: a run without logs takes no more memory, and counts every step") {
  Run run(LossReading::at_logs);
  const std::int64_t steps = 2 * StepSums::kCapacity + 7;
  std::int64_t bytes = 0;
  for (const at::Tensor& each : run.losses.on_device()) bytes += std::int64_t(each.nbytes());
  for (std::int64_t step = 1; step <= steps; ++step) run.step(step, {{double(step), 2}});
  std::int64_t later = 0;
  for (const at::Tensor& each : run.losses.on_device()) later += std::int64_t(each.nbytes());
  CHECK(later == bytes);
  CHECK(run.losses.latest() == 2 * StepSums::kCapacity);
  CHECK(run.losses.mean() == doctest::Approx((double(steps) + 1) / 2));
}

TEST_CASE("step sums: all kinds keep the steps in order and the open one") {
  for (const auto& make : {make_step_sums, make_graph_step_sums, make_compiled_step_sums}) {
    const auto sums = make(at::kCPU);
    for (const double loss : {1.0, 2.0, 3.0}) {
      sums->add(at::scalar_tensor(loss), at::scalar_tensor(2.0, at::kDouble));
      sums->add(at::full({1}, loss, at::kBFloat16).requires_grad_(), 1);
      sums->close();
    }
    sums->add(at::scalar_tensor(7.0), 1);
    const StepSums::Result taken = sums->take(DeferredScalar(at::scalar_tensor(0.5)));
    CHECK(taken.sums == std::vector<double>{3, 6, 9});
    CHECK(taken.extra == 0.5);
    CHECK(sums->open() == 7);
    CHECK(sums->take(4.0).extra == 4);
    CHECK(sums->take({}).sums.empty());
    sums->set_open(0.25);
    sums->close();
    CHECK(sums->take({}).sums == std::vector<double>{0.25});
    CHECK(sums->open() == 0);
  }
}

TEST_CASE("step sums: a graph adds to the open step after any number of steps") {
  operator_graphs::Counts counts;
  operator_graphs::OperatorRecorder recorder(counts);
  const auto sums = make_graph_step_sums(at::kCPU);
  const at::Tensor loss = at::zeros({}), items = at::zeros({}, at::kDouble);
  const GraphRecorder::Recording made = recorder.record([&] { sums->add(loss, items); });
  REQUIRE_MESSAGE(made.graph, made.failure);
  std::vector<double> expected;
  for (int step = 1; step <= 5; ++step) {
    for (int batch = 1; batch <= 2; ++batch) {
      loss.fill_(step);
      items.fill_(batch);
      made.graph->replay();
    }
    CHECK(sums->open() == 3 * step);
    if (step == 3) {  // reading inside a step keeps the sum of that step
      CHECK(sums->take({}).sums == expected);
      expected.clear();
      CHECK(sums->open() == 9);
    }
    sums->close();
    expected.push_back(3 * step);
  }
  CHECK(sums->take({}).sums == expected);
}

TEST_CASE("loss reading: a device that reads late reads each step where its loss is used") {
  const DeviceTraits late{.defers_scalar_reads = true}, plain{};
  TrainingArguments args, strict;
  strict.stop_on_nonfinite_loss = true;
  CHECK((loss_reading(plain, strict, true) == LossReading::each_batch));
  CHECK((loss_reading(late, args) == LossReading::at_logs));
  CHECK((loss_reading(late, strict) == LossReading::each_step));
  CHECK((loss_reading(late, args, true) == LossReading::each_step));
}

}  // namespace trainer_loss_record_test
