// Data that cannot be divided evenly: four recordings of different lengths are distributed over the
// processes, and a stream can be read only by rank 0.
//
//   $ example_06_uneven_data                               # one process
//   $ hasten launch -n 3 example_06_uneven_data            # three processes, the same numbers
#include <hasten/hasten.h>
#include <torch/torch.h>

#include <span>
#include <vector>

#include "../common/accuracy.h"
#include "../common/spirals.h"

namespace {

using Rows = torch::data::Example<>;

// Adds 60 rows of a recording to each batch, and batches at the end if the recording is longer.
void add_recording(std::vector<Rows>& batches, const Rows& recording) {
  const auto points = recording.data.split(60), targets = recording.target.split(60);
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (i == batches.size()) {
      batches.emplace_back(points[i], targets[i]);
    } else {
      batches[i] = {at::cat({batches[i].data, points[i]}),
                    at::cat({batches[i].target, targets[i]})};
    }
  }
}

// A stream of points. Its length is not known in advance.
class PointStream {
 public:
  std::optional<Rows> next() {
    if (row_ == points_.data.size(0)) return std::nullopt;
    const std::int64_t row = row_++;
    return Rows{points_.data[row], points_.target[row]};
  }
  void rewind(std::int64_t) { row_ = 0; }

 private:
  Rows points_ = spiral_points(1001);
  std::int64_t row_ = 0;
};

Rows stack(std::span<const Rows> rows) {
  return torch::data::transforms::Stack<>().apply_batch({rows.begin(), rows.end()});
}

int train() {
  hasten::Accelerator accelerator;
  const at::Device device = accelerator.device();
  torch::manual_seed(42);
  Net net;
  torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(3e-3));
  std::vector<Rows> own_batches;
  std::int64_t number = 0;
  for (const std::int64_t length : {3000, 2350, 1500, 910}) {
    // A prepared loader moves its batches to the device. These batches come from no loader.
    const Rows recording = spiral_points(length);
    if (number++ % accelerator.group().size() == accelerator.group().rank())
      add_recording(own_batches, {recording.data.to(device), recording.target.to(device)});
  }
  auto stream = hasten::make_loader(PointStream(), {.batch_size = 50}, stack);
  auto [model, optimizer, eval_loader] = accelerator.prepare(net, adamw, stream);

  for (int epoch = 0; epoch < 6; ++epoch) {
    at::Tensor loss_sum = at::zeros({}, device), row_count = at::zeros({}, device);
    {
      // Some processes finish their recordings before others.
      auto scope = accelerator.join_uneven_inputs(model);
      for (const Rows& batch : own_batches) {
        const auto rows = static_cast<double>(batch.data.size(0));
        optimizer.zero_grad();
        auto loss = torch::nn::functional::cross_entropy(model(batch.data), batch.target);
        accelerator.backward(loss, rows);  // weights the loss by its rows
        optimizer.step();
        loss_sum += loss.detach() * rows;
        row_count += rows;
      }
    }
    const auto loss = (accelerator.reduce(loss_sum) / accelerator.reduce(row_count)).item<double>();
    const Accuracy accuracy = measure_accuracy(accelerator, model, eval_loader);
    accelerator.print(hasten::str("epoch ", epoch, ": loss ", hasten::fixed(loss, 4), ", accuracy ",
                                  hasten::fixed(accuracy.value, 4), " of ", accuracy.rows,
                                  " rows"));
  }
  return 0;
}

}  // namespace

int main() { return hasten::run_main(train); }
