// Losses that are read when they are logged, in several processes, each a fork of this one.
#include "trainer/loss_record.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/process/notebook_launcher.h"
#include "unit/prepare/forked.h"

namespace trainer_loss_record_test {

using namespace hasten;
using namespace hasten::forked;

namespace {

// Runs four steps with two rows in each process; rank 0 has the share `bad` in step 2, and rank 1
// has NaN in step 4. Both must report the same.
void run_four_steps(bool deferred, double bad) {
  debug_launcher(
      [&] {
        Accelerator accelerator({.cpu = true});
        const Group& group = accelerator.group();
        std::vector<LossRecord::Nonfinite> reported;
        LossRecord losses({}, group, at::kCPU, deferred,
                          [&](const LossRecord::Nonfinite& each) { reported.push_back(each); });
        for (std::int64_t step = 1; step <= 4; ++step) {
          double loss = static_cast<double>(step + group.rank());
          if (group.rank() == 0 && step == 2) loss = bad;
          if (group.rank() == 1 && step == 4) loss = std::nan("");
          losses.add(at::scalar_tensor(loss), 2);
          const at::Tensor sum = group.reduce(at::scalar_tensor(losses.of_step(), at::kDouble));
          losses.close({.loss = sum.item<double>(), .items = 4}, step);
        }
        const LossRecord::Logged logged = losses.take_since_log(4);
        require(logged.nonfinite == 2, str(logged.nonfinite, " steps are not finite"));
        require(std::abs(logged.loss - 2.5) < 1e-6, str("the mean is ", logged.loss));  // 1.5, 3.5
        require(std::abs(losses.mean() - 2.5) < 1e-6, "the mean over all finite steps differs");
        require(!reported.empty() && reported.front().step == 2, "step 2 is not reported first");
      },
      2);
}

}  // namespace

TEST_CASE("loss record: a step's loss is not finite if one process's share is not") {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    run_four_steps(false, bad);
    run_four_steps(true, bad);
  }
}

}  // namespace trainer_loss_record_test
