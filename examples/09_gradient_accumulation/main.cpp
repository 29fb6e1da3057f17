// A batch of 480 rows that is never computed at once: windows of 16 micro-batches of different
// sizes give the weights of whole batches, in any number of processes, with one exchange per
// window.
//
//   $ hasten launch -n 2 example_09_gradient_accumulation
#include <hasten/hasten.h>
#include <torch/torch.h>

#include <vector>

#include "../common/spirals.h"

namespace {

using Rows = torch::data::Example<>;

constexpr std::int64_t kRows = 480, kWindow = 16, kSteps = 30;

// Returns the batch of a step, on the device. A prepared loader would move its batches itself.
Rows batch_of_step(std::int64_t step, at::Device device) {
  torch::manual_seed(step);
  const Rows batch = spiral_points(kRows);
  return {batch.data.to(device), batch.target.to(device)};
}

Rows narrow(const Rows& batch, std::int64_t first, std::int64_t rows) {
  return {batch.data.narrow(0, first, rows), batch.target.narrow(0, first, rows)};
}

// Returns the rows of this process. The last process takes the remainder.
Rows own_rows(const Rows& batch, const hasten::Group& group) {
  const std::int64_t share = kRows / group.size(), first = group.rank() * share;
  return narrow(batch, first, group.rank() + 1 == group.size() ? kRows - first : share);
}

// Splits a batch into micro-batches of 1, 2, 3, ... rows. Their mean losses must be weighted by
// their rows.
std::vector<Rows> split(const Rows& batch) {
  std::vector<Rows> micro_batches;
  std::int64_t first = 0;
  for (std::int64_t i = 0; i < kWindow; ++i) {
    const std::int64_t rest = batch.data.size(0) - first;
    const std::int64_t rows = i + 1 == kWindow ? rest : std::min(rest, i + 1);
    micro_batches.push_back(narrow(batch, first, rows));
    first += rows;
  }
  return micro_batches;
}

Net new_net() {
  torch::manual_seed(42);
  return Net();
}

torch::optim::SGD new_optimizer(Net& net) {
  return torch::optim::SGD(net->parameters(), torch::optim::SGDOptions(0.3).momentum(0.9));
}

// Trains with plain LibTorch, all rows of a step at once.
Net train_whole_batches(at::Device device) {
  Net net = new_net();
  net->to(device);
  auto sgd = new_optimizer(net);
  for (std::int64_t step = 0; step < kSteps; ++step) {
    const Rows batch = batch_of_step(step, device);
    sgd.zero_grad();
    torch::nn::functional::cross_entropy(net(batch.data), batch.target).backward();
    sgd.step();
  }
  return net;
}

double largest_difference(const Net& a, const Net& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a->parameters().size(); ++i) {
    const at::Tensor difference = a->parameters()[i] - b->parameters()[i];
    largest = std::max(largest, difference.abs().max().item<double>());
  }
  return largest;
}

int compare() {
  hasten::Accelerator accelerator({.gradient_accumulation_steps = kWindow});
  Net net = new_net();
  auto sgd = new_optimizer(net);
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  const at::Device device = accelerator.device();
  std::int64_t most_rows = 0, exchanges = 0;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    for (const Rows& batch : split(own_rows(batch_of_step(step, device), accelerator.group()))) {
      auto guard = accelerator.accumulate(model);
      const std::int64_t rows = batch.data.size(0);
      auto loss = torch::nn::functional::cross_entropy(model(batch.data), batch.target);
      accelerator.backward(loss, static_cast<double>(rows));
      optimizer.step();
      optimizer.zero_grad();
      most_rows = std::max(most_rows, rows);
      exchanges += accelerator.sync_gradients() ? 1 : 0;
    }
  }
  const double difference = largest_difference(net, train_whole_batches(device));
  const bool equal = difference < 1e-5;
  accelerator.print(hasten::str(kSteps, " steps of ", kRows, " rows in micro-batches of at most ",
                                most_rows, ": ", exchanges,
                                " windows, weights differ from those of whole batches by ",
                                equal ? "rounding" : hasten::str("more: ", difference)));
  return equal ? 0 : 1;
}

}  // namespace

int main() { return hasten::run_main(compare); }
