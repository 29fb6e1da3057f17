// A small vision transformer learns handwritten digits: the port of image_classification.py.
//
//   image_classification [MODEL DIGITS]    a model folder, and a table of labels and 8 x 8 pixels
#include <hasten/hasten.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "report.h"

class Digits {
 public:
  // Rows [first, last) of the table: a label, and 64 pixels of 0 to 16 as digits of base 17.
  Digits(const hasten::TextTable& table, std::int64_t first, std::int64_t last) {
    const std::vector<std::int64_t> labels = table.integers("label");
    for (std::int64_t row = first; row < last; ++row) {
      const auto at = static_cast<std::size_t>(row);
      std::vector<float> values;
      for (const char each : table.column("pixels")[at])
        values.push_back(static_cast<float>(each <= '9' ? each - '0' : each - 'a' + 10));
      rows_.push_back({{"pixel_values", (torch::tensor(values) / 8 - 1).view({1, 8, 8})},
                       {"labels", torch::tensor(labels[at])}});
    }
  }
  std::int64_t size() const { return static_cast<std::int64_t>(rows_.size()); }
  hasten::TensorDict get(std::int64_t row) const { return rows_[static_cast<std::size_t>(row)]; }

 private:
  std::vector<hasten::TensorDict> rows_;
};

int main(int argc, char** argv) {
  const std::string folder = argc > 2 ? argv[1] : "tests/oracle/data/tasks/vit",
                    file = argc > 2 ? argv[2] : "tests/oracle/data/tasks/digits.tsv";
  const auto model = hasten::load_model(folder, {.task = hasten::Task::image_classification}).model;
  const hasten::TextTable table = hasten::read_tsv(file, {.names = {"label", "pixels"}});
  const hasten::TemporaryDirectory out;
  hasten::Trainer trainer(model,
                          {.output_dir = out.path() / "run",
                           .per_device_train_batch_size = 16,
                           .per_device_eval_batch_size = 64,
                           .num_train_epochs = 5,
                           .learning_rate = 2e-3,
                           .lr_scheduler_type = hasten::SchedulerType::cosine,
                           .warmup_steps = 0.1,
                           .weight_decay = 0.01,
                           .label_smoothing_factor = 0.1,
                           .use_cpu = true,
                           .eval_strategy = hasten::IntervalStrategy::epoch,
                           .save_strategy = hasten::SaveStrategy::no},
                          {.train_dataset = hasten::TrainerDataset(Digits(table, 0, 1000)),
                           .eval_dataset = hasten::TrainerDataset(Digits(table, 1000, 1400)),
                           .compute_metrics = std::make_shared<hasten::Accuracy>()});
  trainer.train();
  print_evaluations(trainer, {"loss", "accuracy"});
}
