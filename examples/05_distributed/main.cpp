// One program for any number of processes: it gives the same weights after the same steps, and an
// accuracy over each row exactly once.
//
//   $ example_05_distributed                               # one process
//   $ hasten launch -n 3 example_05_distributed            # three processes, the same numbers
//   $ mpirun -n 2 example_05_distributed                   # or srun, or torchrun --no-python
#include <torch/torch.h>

#include <hasten/hasten.h>

#include "../01_accelerate_a_loop/spirals.h"

namespace {

constexpr std::int64_t kRowsPerStep = 60;  // in all processes together

double accuracy_of(hasten::Accelerator& accelerator, auto& model, auto& loader,
                   std::int64_t& rows) {
  const torch::NoGradGuard no_grad;
  model->eval();
  std::int64_t right = 0;
  rows = 0;
  for (auto& batch : loader) {
    // 1,001 rows are not a multiple of the batch size: the last step is padded with further rows,
    // and gather_for_metrics leaves these out again.
    const at::Tensor hits =
        accelerator.gather_for_metrics((model(batch.data).argmax(1) == batch.target));
    right += hits.sum().template item<std::int64_t>();
    rows += hits.size(0);
  }
  model->train();
  return static_cast<double>(right) / static_cast<double>(rows);
}

}  // namespace

int main() {
  hasten::Accelerator accelerator({.dataloader_config = {.split_batches = true}});
  torch::manual_seed(
      42);  // gives every process the same data; the weights would be rank 0's with any seeds
  Net net;
  torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(3e-3));
  auto stacked = [](std::int64_t rows) {
    return spirals(rows).map(torch::data::transforms::Stack<>());
  };
  auto train = hasten::make_loader(stacked(3000), {.batch_size = kRowsPerStep, .shuffle = true});
  auto evaluation = hasten::make_loader(stacked(1001), {.batch_size = kRowsPerStep});
  auto [model, optimizer, train_loader, eval_loader] =
      accelerator.prepare(net, adamw, train, evaluation);

  for (int epoch = 0; epoch < 6; ++epoch) {
    double loss_sum = 0;
    for (auto& batch : train_loader) {
      optimizer.zero_grad();
      auto loss = torch::nn::functional::cross_entropy(model(batch.data), batch.target);
      accelerator.backward(loss);
      optimizer.step();
      loss_sum += accelerator.reduce(loss.detach(), hasten::Reduction::mean).item<double>();
    }
    std::int64_t rows = 0;
    const double accuracy = accuracy_of(accelerator, model, eval_loader, rows);
    accelerator.print(
        hasten::str("epoch ", epoch, ": loss ",
                    hasten::fixed(loss_sum / static_cast<double>(train_loader.size()), 4),
                    ", accuracy ", hasten::fixed(accuracy, 4), " of ", rows, " rows"));
  }
}
