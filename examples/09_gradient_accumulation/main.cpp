// A batch of 480 rows that is never computed at once: windows of 16 micro-batches of unequal sizes
// give the weights of whole batches, in any number of processes, with one exchange per window.
//
//   $ hasten launch -n 2 example_09_gradient_accumulation
#include <torch/torch.h>

#include <hasten/hasten.h>
#include <vector>

#include "../01_accelerate_a_loop/spirals.h"

namespace {

constexpr std::int64_t kRows = 480, kWindow = 16, kSteps = 30;

struct Batch {
  at::Tensor points, spiral;
};

Batch step_of(std::int64_t step) {
  torch::manual_seed(step);
  Spirals rows = spirals(kRows);
  std::vector<at::Tensor> points, which;
  for (std::int64_t i = 0; i < kRows; ++i) {
    const auto row = rows.get(static_cast<std::size_t>(i));
    points.push_back(row.data);
    which.push_back(row.target);
  }
  return {torch::stack(points), torch::stack(which)};
}

// Micro-batches of 1, 2, 3, ... rows: their means must be weighted by their rows.
std::vector<Batch> micro_batches_of(const Batch& batch) {
  std::vector<Batch> micro_batches;
  std::int64_t first = 0;
  for (std::int64_t i = 0; i < kWindow; ++i) {
    const std::int64_t rest = batch.points.size(0) - first;
    const std::int64_t rows = i + 1 == kWindow ? rest : std::min(rest, i + 1);
    micro_batches.push_back(
        {batch.points.narrow(0, first, rows), batch.spiral.narrow(0, first, rows)});
    first += rows;
  }
  return micro_batches;
}

Net new_net() {
  torch::manual_seed(42);
  return Net();
}

at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& spiral) {
  return torch::nn::functional::cross_entropy(logits, spiral);
}

// Trains with plain LibTorch, all rows of a step at once.
Net whole_batches() {
  Net net = new_net();
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.3).momentum(0.9));
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const Batch batch = step_of(step);
    sgd.zero_grad();
    loss_of(net->forward(batch.points), batch.spiral).backward();
    sgd.step();
  }
  return net;
}

}  // namespace

int main() {
  hasten::Accelerator accelerator({.gradient_accumulation_steps = kWindow});
  const auto& group = accelerator.group();
  Net net = new_net();
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.3).momentum(0.9));
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  const std::int64_t share = kRows / group.size();
  std::int64_t largest = 0, exchanges = 0;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const Batch whole = step_of(step);
    // The last process takes the remainder.
    const std::int64_t first = group.rank() * share,
                       rows = group.rank() + 1 == group.size() ? kRows - first : share;
    const Batch own = {whole.points.narrow(0, first, rows), whole.spiral.narrow(0, first, rows)};
    for (const Batch& micro_batch : micro_batches_of(own)) {
      auto guard = accelerator.accumulate(model);
      const std::int64_t items = micro_batch.points.size(0);
      accelerator.backward(loss_of(model(micro_batch.points), micro_batch.spiral),
                           static_cast<double>(items));
      optimizer.step();
      optimizer.zero_grad();
      largest = std::max(largest, items);
      exchanges += accelerator.sync_gradients() ? 1 : 0;
    }
  }
  const Net reference = whole_batches();
  double most = 0;
  for (std::size_t i = 0; i < net->parameters().size(); ++i) {
    const at::Tensor apart = net->parameters()[i] - reference->parameters()[i];
    most = std::max(most, apart.abs().max().item<double>());
  }
  accelerator.print(
      hasten::str(kSteps, " steps of ", kRows, " rows in micro-batches of at most ", largest, ": ",
                  exchanges, " windows, weights differ from those of whole batches by ",
                  most < 1e-5 ? "rounding" : "more", most < 1e-5 ? "" : hasten::str(": ", most)));
  return most < 1e-5 ? 0 : 1;
}
