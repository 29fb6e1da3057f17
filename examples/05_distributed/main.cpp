// One program for any number of processes: it gives the same weights after the same steps, and an
// accuracy that counts each row once.
//
//   $ example_05_distributed                               # one process
//   $ hasten launch -n 3 example_05_distributed            # three processes, the same numbers
//   $ mpirun -n 2 example_05_distributed                   # or srun, or torchrun --no-python
#include <hasten/hasten.h>
#include <torch/torch.h>

#include "../common/accuracy.h"
#include "../common/spirals.h"

static int train() {
  hasten::Accelerator accelerator({.dataloader_config = {.split_batches = true}});
  // Gives every process the same data. All processes start with rank 0's weights, whatever the
  // seed.
  torch::manual_seed(42);
  Net net;
  torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(3e-3));
  // The batch size counts the rows of all processes together.
  auto train_rows = hasten::make_loader(spirals(3000), {.batch_size = 60, .shuffle = true});
  auto eval_rows = hasten::make_loader(spirals(1001), {.batch_size = 60});
  auto [model, optimizer, train_loader, eval_loader] =
      accelerator.prepare(net, adamw, train_rows, eval_rows);

  for (int epoch = 0; epoch < 6; ++epoch) {
    double loss_sum = 0;
    for (auto& batch : train_loader) {
      optimizer.zero_grad();
      auto loss = torch::nn::functional::cross_entropy(model(batch.data), batch.target);
      accelerator.backward(loss);
      optimizer.step();
      loss_sum += accelerator.reduce(loss.detach(), hasten::Reduction::mean).item<double>();
    }
    const Accuracy accuracy = measure_accuracy(accelerator, model, eval_loader);
    accelerator.print(hasten::str(
        "epoch ", epoch, ": loss ",
        hasten::fixed(loss_sum / static_cast<double>(train_loader.size()), 4), ", accuracy ",
        hasten::fixed(accuracy.value, 4), " of ", accuracy.rows, " rows"));
  }
  return 0;
}

int main() { return hasten::run_main(train); }
