// Runs evaluations and predictions in which only rank 1 fails: all ranks get an error, and then
// evaluate again. evaluation.py runs this program. The watchdog ends a rank that waits for another
// one.
//
//   evaluation OUTPUT-FOLDER
//
// Prints a line for each failure on rank 0.
#include <torch/torch.h>

#include <atomic>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "hasten/accelerator.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/launch/worker.h"
#include "hasten/metrics/metric.h"
#include "hasten/trainer/trainer.h"

using namespace hasten;

namespace {

constexpr std::int64_t kFailingRank = 1, kRows = 45;

// Throws in one rank, by default at the third visit of a place.
class Fault {
 public:
  explicit Fault(std::int64_t rank) : is_here_(rank == kFailingRank) {}
  void set(std::string place) {
    place_ = std::move(place);
    visits_ = 0;
  }
  void visit(const std::string& here, int at_visit = 3) {
    if (!is_here_ || here != place_ || ++visits_ != at_visit) return;
    if (here == "memory") throw std::bad_alloc();
    throw std::runtime_error("failed in " + here);
  }

 private:
  const bool is_here_;
  std::string place_;
  std::atomic<int> visits_ = 0;
};

TensorDict row_of(std::int64_t index) {
  const auto number = static_cast<float>(index);
  return {{"x", at::full({3}, number / 20).cos()}, {"labels", at::full({1}, number / 10).sin()}};
}

struct Rows {
  std::int64_t size() const { return kRows; }
  TensorDict get(std::int64_t index) const {
    fault->visit("data");
    return row_of(index);
  }
  std::shared_ptr<Fault> fault;
};

struct Stream {
  std::optional<TensorDict> next() {
    return at < kRows ? std::optional(row_of(at++)) : std::nullopt;
  }
  void rewind(std::int64_t) { at = 0; }
  std::int64_t at = 0;
};

struct Net : torch::nn::Module {
  explicit Net(std::shared_ptr<Fault> given) : fault(std::move(given)) {
    torch::manual_seed(1);
    layer = register_module("layer", torch::nn::Linear(3, 1));
  }
  ModelOutput forward(const TensorDict& batch) {
    if (!is_training()) {
      fault->visit("model");
      fault->visit("memory");
    }
    const at::Tensor logits = layer(batch.at("x"));
    return {.loss = at::mse_loss(logits, batch.at("labels")), .logits = logits};
  }
  std::shared_ptr<Fault> fault;
  torch::nn::Linear layer{nullptr};
};

// Computes the number of rows, either from counts that the ranks add up or from the rows of all
// ranks.
class RowCount : public EvalMetric {
 public:
  RowCount(std::shared_ptr<Fault> fault, bool adds_up)
      : fault_(std::move(fault)), adds_up_(adds_up) {}
  void reset() override {
    fault_->visit("reset", 1);
    rows_ = 0;
  }
  void add(const at::Tensor& logits, const at::Tensor&) override {
    fault_->visit("add");
    rows_ += static_cast<double>(logits.size(0));
  }
  Metrics compute() const override {
    fault_->visit("compute", 1);
    return {{"rows", rows_}};
  }
  std::vector<double*> counts() override {
    return adds_up_ ? std::vector<double*>{&rows_} : std::vector<double*>();
  }

 private:
  std::shared_ptr<Fault> fault_;
  bool adds_up_;
  double rows_ = 0;
};

struct FailingCallback : TrainerCallback {
  explicit FailingCallback(std::shared_ptr<Fault> fault) : fault(std::move(fault)) {}
  void on_evaluate_begin(const TrainerEvent&, std::int64_t) override {
    fault->visit("on_evaluate_begin", 1);
  }
  void on_prediction_step(const TrainerEvent&, TrainerControl&) override {
    fault->visit("on_prediction_step");
  }
  void on_evaluate(const TrainerEvent&, TrainerControl&, const Metrics&) override {
    fault->visit("on_evaluate", 1);
  }
  void on_predict(const TrainerEvent&, TrainerControl&, const Metrics&) override {
    fault->visit("on_predict", 1);
  }
  std::shared_ptr<Fault> fault;
};

struct FailingTrainer : Trainer {
  using Trainer::Trainer;
  Loader<AnyBatch> get_eval_dataloader(const TrainerDataset& dataset) override {
    if (fault) fault->visit("get_eval_dataloader", 1);
    return Trainer::get_eval_dataloader(dataset);
  }
  std::shared_ptr<Fault> fault;
};

void require(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error(what);
}

// A Trainer and the fault that its parts share.
struct TrainerUnderTest {
  TrainerUnderTest(const std::string& folder, std::int64_t rank, const TrainerDataset& eval,
                   bool adds_up, const std::shared_ptr<Fault>& fault, const std::string& sharing,
                   std::int64_t workers)
      : rank(rank),
        fault(fault),
        trainer(
            std::make_shared<Net>(fault),
            training_arguments_from_json(str(
                R"({"output_dir": ")", folder,
                R"(", "use_cpu": true, "disable_tqdm": true, "save_strategy": "no", "ddp_timeout": 20,
                        "per_device_train_batch_size": 4, "per_device_eval_batch_size": 4, "max_steps": 2,
                        "eval_strategy": "steps", "eval_steps": 1, "dataloader_num_workers": )",
                workers, sharing, "}")),
            {.train_dataset = TrainerDataset(Rows{std::make_shared<Fault>(-1)}),
             .eval_dataset = eval,
             .compute_metrics = std::make_shared<RowCount>(fault, adds_up),
             .callbacks = {std::make_shared<FailingCallback>(fault)},
             .log_sink = [](std::string_view) {}}) {
    trainer.fault = fault;
    loss = trainer.evaluate().at("eval_loss");
  }

  // Requires that all ranks throw, and that they evaluate all rows together afterwards. If `code`
  // is empty, the failing rank gets its own exception; otherwise all ranks get an error with this
  // code.
  void check(const std::string& what, const std::string& place, const std::string& code,
             const std::function<void()>& call) {
    fault->set(place);
    std::string got = "nothing", got_code;
    try {
      call();
    } catch (const Error& error) {
      got = error.what();
      got_code = error.code();
    } catch (const std::exception& error) {
      got = error.what();
    }
    fault->set("");
    const std::string name = str(what, ", ", place, ", rank ", rank);
    const bool is_own = rank == kFailingRank;
    const std::string expected = !code.empty() ? code : is_own ? "" : "process.failed-elsewhere";
    require(got_code == expected, str(name, ": got ", got_code, " ", got));
    const auto contains = [&](const std::string& part) {
      require(got.find(part) != std::string::npos, str(name, ": got ", got));
    };
    if (place != "memory") contains("failed in " + place);
    if (code.empty() && !is_own) contains(str("rank ", kFailingRank));
    const Metrics again = trainer.evaluate();
    require(again.at("eval_rows") == kRows, str(name, ": rows afterwards"));
    if (rank == 0) std::printf("%s: %s\n", name.c_str(), got.c_str());
    std::fflush(stdout);
  }

  std::int64_t rank;
  std::shared_ptr<Fault> fault;
  FailingTrainer trainer;
  double loss = 0;
};

void run(const std::string& folder, std::int64_t rank) {
  const auto fault = std::make_shared<Fault>(rank);
  const auto make_trainer = [&](const TrainerDataset& eval, bool adds_up,
                                const std::string& sharing = "", std::int64_t workers = 0) {
    return std::make_unique<TrainerUnderTest>(folder, rank, eval, adds_up, fault, sharing, workers);
  };
  const TrainerDataset rows(Rows{fault});
  const auto evaluates = [](TrainerUnderTest& of) { return [&of] { of.trainer.evaluate(); }; };
  for (const bool adds_up : {true, false}) {
    const auto plain = make_trainer(rows, adds_up);
    const std::string kind = adds_up ? "counts" : "all rows";
    for (const char* place : {"model", "reset", "add", "compute", "on_evaluate_begin",
                              "on_prediction_step", "on_evaluate", "get_eval_dataloader"})
      plain->check("evaluation, " + kind, place, "", evaluates(*plain));
    plain->check("evaluation, " + kind, "data", "data.batch", evaluates(*plain));
    plain->check("evaluation, " + kind, "memory", "trainer.out-of-memory", evaluates(*plain));
    for (const char* place : {"add", "on_evaluate"})
      plain->check("training, " + kind, place, "", [&] { plain->trainer.train(); });
    for (const char* place : {"model", "compute", "on_prediction_step", "on_predict"})
      plain->check("prediction, " + kind, place, "", [&] { plain->trainer.predict(rows); });
    plain->check("prediction, " + kind, "data", "data.batch",
                 [&] { plain->trainer.predict(rows); });
  }
  const auto workers = make_trainer(rows, true, "", 2);
  workers->check("evaluation with workers", "data", "data.batch", evaluates(*workers));
  for (const char* sharing : {"", R"(, "accelerator_config": {"dispatch_batches": false})"}) {
    for (const bool adds_up : {true, false}) {
      const auto stream = make_trainer(TrainerDataset(Stream()), adds_up, sharing);
      for (const char* place : {"model", "add", "on_prediction_step"})
        stream->check(str("evaluation of a stream", sharing), place, "", evaluates(*stream));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 2) throw std::logic_error("usage: evaluation OUTPUT-FOLDER");
    run(argv[1], this_worker().rank);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
