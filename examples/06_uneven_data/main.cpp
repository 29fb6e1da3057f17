// Data that cannot be divided evenly: whole recordings of unequal length, four of them, are
// distributed over the processes, and a stream can be read by the first process only.
//
//   $ example_06_uneven_data                               # one process
//   $ hasten launch -n 3 example_06_uneven_data            # three processes, the same numbers
#include <torch/torch.h>

#include <hasten/hasten.h>

#include <numeric>

#include "../01_accelerate_a_loop/spirals.h"

namespace {

constexpr std::int64_t kRowsPerStep = 60;  // in each recording

struct Recording {
  at::Tensor points, spirals;
  std::int64_t steps() const { return (points.size(0) + kRowsPerStep - 1) / kRowsPerStep; }
};

Recording recording(std::int64_t rows) {
  std::vector<std::size_t> all(static_cast<std::size_t>(rows));
  std::iota(all.begin(), all.end(), std::size_t{0});
  auto batch =
      spirals(rows).map(torch::data::transforms::Stack<>()).get_batch(c10::ArrayRef<size_t>(all));
  return {batch.data, batch.target};
}

// Returns the rows of all of this process's recordings for one step, or nothing after the last step
// of the longest one.
std::optional<Recording> rows_of_step(const std::vector<Recording>& own, std::int64_t step) {
  std::vector<at::Tensor> points, spirals;
  for (const Recording& each : own) {
    if (step >= each.steps()) continue;
    points.push_back(each.points.split(kRowsPerStep)[static_cast<std::size_t>(step)]);
    spirals.push_back(each.spirals.split(kRowsPerStep)[static_cast<std::size_t>(step)]);
  }
  if (points.empty()) return std::nullopt;
  return Recording{at::cat(points), at::cat(spirals)};
}

// A row of the stream: a point, and the name of its spiral.
struct Report {
  at::Tensor point;
  std::string spiral;
};

// A stream of reports, whose number is not known in advance.
class Reports {
 public:
  explicit Reports(Recording rows) : rows_(std::move(rows)) {}
  std::optional<Report> next() {
    if (at_ == rows_.points.size(0)) return std::nullopt;
    const bool outer = rows_.spirals[at_].item<std::int64_t>() == 1;
    return Report{rows_.points[at_++], outer ? "outer" : "inner"};
  }
  void rewind(std::int64_t) { at_ = 0; }

 private:
  Recording rows_;
  std::int64_t at_ = 0;
};

// A batch of reports. Texts are sent to the other processes just as tensors are.
using Batch = std::pair<at::Tensor, std::vector<std::string>>;

struct StackReports {
  Batch operator()(std::span<const Report> reports) const {
    std::vector<at::Tensor> points;
    std::vector<std::string> words;
    for (const Report& report : reports) {
      points.push_back(report.point);
      words.push_back(report.spiral);
    }
    return {at::stack(points), words};
  }
};

double accuracy_of(hasten::Accelerator& accelerator, auto& model, auto& loader,
                   std::int64_t& rows) {
  const torch::NoGradGuard no_grad;
  std::int64_t right = 0;
  rows = 0;
  for (auto& [points, words] : loader) {
    const at::Tensor guesses = model(points).argmax(1);
    at::Tensor hits = at::zeros({guesses.size(0)}, at::kBool);
    for (std::int64_t i = 0; i < hits.size(0); ++i) {
      const std::int64_t spiral = words[static_cast<std::size_t>(i)] == "outer";
      hits[i] = guesses[i].template item<std::int64_t>() == spiral;
    }
    hits = accelerator.gather_for_metrics(hits);
    right += hits.sum().template item<std::int64_t>();
    rows += hits.size(0);
  }
  return static_cast<double>(right) / static_cast<double>(rows);
}

}  // namespace

int main() {
  hasten::Accelerator accelerator({.cpu = true});
  torch::manual_seed(42);
  Net net;
  torch::optim::AdamW adamw(net->parameters(), torch::optim::AdamWOptions(3e-3));
  std::vector<Recording> own;
  std::int64_t number = 0;
  for (const std::int64_t rows : {3000, 2350, 1500, 910}) {
    Recording each = recording(rows);
    if (number++ % accelerator.group().size() == accelerator.group().rank()) own.push_back(each);
  }
  auto reports = hasten::make_loader(Reports(recording(1001)), {.batch_size = 50}, StackReports{});
  auto [model, optimizer, eval_loader] = accelerator.prepare(net, adamw, reports);

  for (int epoch = 0; epoch < 6; ++epoch) {
    at::Tensor loss_sum = at::zeros({}), row_count = at::zeros({});
    {
      // Some processes finish their recordings before others.
      auto scope = accelerator.join_uneven_inputs(model);
      for (std::int64_t step = 0; auto batch = rows_of_step(own, step); ++step) {
        const auto rows = static_cast<double>(batch->points.size(0));
        optimizer.zero_grad();
        auto loss = torch::nn::functional::cross_entropy(model(batch->points), batch->spirals);
        accelerator.backward(loss, rows);
        optimizer.step();
        loss_sum += loss.detach() * rows;
        row_count += rows;
      }
    }
    const auto loss = (accelerator.reduce(loss_sum) / accelerator.reduce(row_count)).item<double>();
    std::int64_t rows = 0;
    const double accuracy = accuracy_of(accelerator, model, eval_loader, rows);
    accelerator.print(hasten::str("epoch ", epoch, ": loss ", hasten::fixed(loss, 4), ", accuracy ",
                                  hasten::fixed(accuracy, 4), " of ", rows, " rows"));
  }
}
