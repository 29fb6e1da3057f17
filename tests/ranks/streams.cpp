// Trains and evaluates a small model on a stream of unknown size, in any number of processes.
// streams.py compares the results that the main process writes.
//
//   streams OUTPUT-FOLDER RESULT-FILE [NAME=VALUE ...]
//
// `rows` is the number of rows of the stream. Rank `short_rank` has three fewer rows, and rank
// `failing_rank` throws at its eighth row. With `only_main`, the other ranks have no rows. With
// `sized`, the stream of the main process knows its size, and with `parts`, the stream can be
// divided into parts of different lengths. Other names are training arguments.
#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/launch/worker.h"
#include "hasten/metrics/metric.h"
#include "hasten/trainer/trainer.h"

using namespace hasten;

namespace {

struct Options {
  std::int64_t rows = 25, short_rank = -1, failing_rank = -1;
  bool only_main = false, sized = false, parts = false;
};

// Rows that are computed from their number.
struct Numbers {
  Numbers(std::int64_t count, std::int64_t failing) : count(count), failing(failing) {}
  std::optional<TensorDict> next() {
    if (at == count) return std::nullopt;
    if (at == failing) throw std::runtime_error("the disk is gone");
    ++reads;
    const auto number = static_cast<float>(at++);
    return TensorDict{{"x", at::full({3}, number / 20).cos()},
                      {"labels", at::full({1}, number / 10).sin()},
                      {"number", at::full({1}, number)}};
  }
  void rewind(std::int64_t) { at = first; }
  void skip(std::int64_t rows) {
    at = std::min(at + rows, count);
    skipped += rows;
  }
  // `count` is the row after the last one.
  std::int64_t count, failing, first = 0, at = 0, reads = 0, skipped = 0;
};

// Part 0 has the first four rows. The other parts divide the remaining rows equally; the last part
// also has the rows that are left over.
struct ShardedNumbers : Numbers {
  using Numbers::Numbers;
  const std::int64_t total = count;
  void shard(std::int64_t num_shards, std::int64_t index) {
    const std::int64_t all = total, each = (all - 4) / (num_shards - 1);
    first = index == 0 ? 0 : 4 + (index - 1) * each;
    count = index == 0 ? 4 : index == num_shards - 1 ? all : first + each;
  }
};

struct SizedNumbers : Numbers {
  using Numbers::Numbers;
  std::int64_t size() const { return count; }
};

struct Net : torch::nn::Module {
  Net() {
    torch::manual_seed(1);
    layer = register_module("layer", torch::nn::Linear(3, 1));
  }
  ModelOutput forward(const TensorDict& batch) {
    const at::Tensor logits = layer(batch.at("x"));
    return {.loss = at::mse_loss(logits, batch.at("labels")),
            .logits = logits,
            .others = {{"number", batch.at("number")}}};
  }
  torch::nn::Linear layer{nullptr};
};

std::shared_ptr<EvalMetric> number_of_rows() {
  return metric_from_function([](const EvalPrediction& all) -> Metrics {
    return {{"rows", static_cast<double>(all.label_ids.size(0))},
            {"sum", all.other_predictions.at("number").sum().item<double>()}};
  });
}

std::vector<double> numbers_of(const at::Tensor& tensor) {
  const at::Tensor values = tensor.to(at::kDouble).contiguous();
  return {values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel()};
}

template <class Stream>
std::shared_ptr<Stream> stream_of(const Options& options, std::int64_t rank) {
  std::int64_t count = options.rows;
  if (rank == options.short_rank) count -= 3;
  if (options.only_main && rank > 0) count = 0;
  return std::make_shared<Stream>(count, rank == options.failing_rank ? 7 : -1);
}

template <class Stream>
void run(const Options& options, const TrainingArguments& args, std::int64_t rank,
         const std::filesystem::path& file) {
  const auto train = stream_of<Stream>(options, rank), eval = stream_of<Stream>(options, rank);
  Trainer trainer(std::make_shared<Net>(), args,
                  {.train_dataset = TrainerDataset(train),
                   .eval_dataset = TrainerDataset(eval),
                   .compute_metrics = number_of_rows()});
  const TrainOutput output = trainer.train();
  nlohmann::json result;
  result["evaluation"] = trainer.evaluate();
  const PredictionOutput predicted = trainer.predict(TrainerDataset(eval));
  result["predicted"] = numbers_of(predicted.other_predictions.at("number"));
  result["prediction"] = predicted.metrics;
  result["steps"] = output.global_step;
  result["history"] = trainer.state().log_history;
  for (const auto& item : trainer.model().named_parameters())
    result["weights"][item.key()] = numbers_of(item.value().detach());
  const nlohmann::json own = {{"reads", train->reads}, {"skipped", train->skipped}};
  result["ranks"] = nlohmann::json::array();
  for (const std::string& text : trainer.accelerator().group().gather_object(own.dump()))
    result["ranks"].push_back(nlohmann::json::parse(text));
  if (trainer.is_world_process_zero()) write_file_atomically(file, result.dump());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::int64_t rank = this_worker().rank;
    Options options;
    nlohmann::json arguments = {{"output_dir", argv[1]},
                                {"use_cpu", true},
                                {"logging_steps", 1},
                                {"disable_tqdm", true},
                                {"save_strategy", "no"}};
    const std::map<std::string, std::int64_t*> numbers = {{"rows", &options.rows},
                                                          {"short_rank", &options.short_rank},
                                                          {"failing_rank", &options.failing_rank}};
    for (int i = 3; i < argc; ++i) {
      const std::string argument = argv[i], name = argument.substr(0, argument.find('=')),
                        value = argument.substr(argument.find('=') + 1);
      if (numbers.contains(name)) {
        *numbers.at(name) = std::stoll(value);
      } else if (name == "only_main" || name == "sized" || name == "parts") {
        (name == "sized"   ? options.sized
         : name == "parts" ? options.parts
                           : options.only_main) = true;
      } else {
        arguments[name] = value;
      }
    }
    const TrainingArguments args = training_arguments_from_json(arguments.dump());
    if (options.parts) {
      run<ShardedNumbers>(options, args, rank, argv[2]);
    } else if (options.sized && rank == 0) {
      run<SizedNumbers>(options, args, rank, argv[2]);
    } else {
      run<Numbers>(options, args, rank, argv[2]);
    }
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "error[%s]: %s\n", error.code().c_str(), error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
