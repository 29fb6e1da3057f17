// Accelerate's test_utils/scripts/external_deps/test_metrics.py (1.15), assert by assert. The
// comments name its functions.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <vector>

#include "hasten/data/loader.h"
#include "hasten/process/notebook_launcher.h"
#include "ported/regression.h"

namespace ported_accelerate_metrics_test {

using namespace hasten;
using namespace hasten::multiprocess_checks;
using namespace hasten::ported;

namespace {

// Predicts every row in batches of 16, and compares the result with the predictions of one process.
void require_predictions(Accelerator& accelerator, std::int64_t samples) {
  const ColumnDataset rows = regression_rows(samples);
  const auto net = std::make_shared<RegressionModel>(1.5, 2.5);
  auto raw = make_loader(rows, {.batch_size = 16});
  auto [model, loader] = accelerator.prepare(net, raw);
  std::vector<at::Tensor> logits, targets;
  const torch::NoGradGuard no_grad;
  for (auto& batch : loader) {
    logits.push_back(accelerator.gather_for_metrics(model(batch.at("x"))));
    targets.push_back(accelerator.gather_for_metrics(batch.at("y")));
  }
  const at::Tensor all = at::cat(logits);
  require(all.size(0) == samples, str("got ", all.size(0), " predictions of ", samples));
  require(at::equal(all, net->forward(rows.columns().at("x"))), "the predictions");
  require(at::equal(at::cat(targets), rows.columns().at("y")), "the targets");
}

}  // namespace

TEST_CASE("metrics of processes: each row is predicted once, also if the rows divide evenly") {
  // test_torch_metrics, with 99 and with 512 rows
  for (const int world : {1, 2, 4}) {
    debug_launcher(
        [] {
          for (const bool split : {true, false}) {
            for (const bool dispatch : {true, false}) {
              Accelerator accelerator(
                  {.dataloader_config = {.split_batches = split, .dispatch_batches = dispatch}});
              require_predictions(accelerator, 99);
            }
          }
          Accelerator accelerator;
          require_predictions(accelerator, 512);
        },
        world);
  }
}

TEST_CASE("metrics of processes: the rows of a stream count once") {
  // test_gather_for_metrics_with_iterable_dataset,
  // test_gather_for_metrics_with_non_tensor_objects_iterable_dataset
  for (const int world : {1, 2}) {
    debug_launcher(
        [] {
          Accelerator accelerator;
          auto raw = make_loader(NumberStream{30}, {.batch_size = 4});
          auto [loader] = accelerator.prepare(raw);
          std::vector<at::Tensor> batches;
          for (auto& batch : loader) batches.push_back(accelerator.gather_for_metrics(batch));
          require(at::equal(at::cat(batches), torch::arange(30)), "the rows of the stream");
        },
        world);
  }
}

TEST_CASE("metrics of processes: with drop_last a step has all of its rows") {
  // test_gather_for_metrics_drop_last
  for (const int world : {1, 2, 3}) {
    debug_launcher(
        [=] {
          Accelerator accelerator;
          auto raw = make_loader(NumberRows{10 * world + 1}, {.batch_size = 5, .drop_last = true});
          auto [loader] = accelerator.prepare(raw);
          auto second = loader.begin();
          ++second;
          require(accelerator.gather_for_metrics(*second).size(0) == 5 * world,
                  "the rows of the second step");
        },
        world);
  }
}

}  // namespace ported_accelerate_metrics_test
