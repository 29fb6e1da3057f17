// Compares the log entries and weights of Trainer runs with runs of the Hugging Face Trainer
// (tests/oracle/generate.py).
#include "hasten/optim/adamw.h"
#include "oracle/trainer_cases.h"

namespace oracle_trainer_test {

using namespace hasten;
using namespace hasten::oracle;

TEST_CASE("trainer: log entries and weights equal those of the Hugging Face Trainer") {
  CHECK(cases().size() > 40);
  for (const fs::path& file : cases()) {
    const std::string name = file.filename().string();
    CAPTURE(name);
    run_case(file);
  }
}

TEST_CASE(
    "accelerator: a loop gives the Hugging Face Trainer's windows of equally weighted "
    "micro-batches") {
  for (const char* name : {"accumulation_3_mean", "accumulation_3_mean_ragged"}) {
    CAPTURE(name);
    const json expected = json::parse(read_file(kData / str(name, ".json")));
    const auto net = base_model();
    net->train();
    const std::int64_t epochs = expected["arguments"].value("num_train_epochs", 3);
    const auto total = static_cast<std::int64_t>(expected["grad_norm"].size());
    AdamW adamw(net->parameters(), torch::optim::AdamWOptions(1e-3).weight_decay(0));
    auto batches = make_loader(first_rows(expected["rows"]), {.batch_size = 8});
    Accelerator accelerator({.gradient_accumulation_steps = 3, .cpu = tested::device().is_cpu()});
    auto [model, optimizer, loader] = accelerator.prepare(net, adamw, batches);
    auto scheduler = get_scheduler("linear", optimizer, 0, total);
    const Tolerance tolerance;
    std::vector<double> norms;
    for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
      for (auto& batch : loader) {
        const auto guard = accelerator.accumulate(model);
        optimizer.zero_grad();
        const ModelOutput out = model(batch);
        accelerator.backward(out.loss);
        if (accelerator.sync_gradients())
          norms.push_back(accelerator.clip_grad_norm_(model->parameters(), 1.0));
        optimizer.step();
        scheduler.step();
      }
    }
    REQUIRE(norms.size() == expected["grad_norm"].size());
    for (std::size_t i = 0; i < norms.size(); ++i)
      CHECK(norms[i] ==
            doctest::Approx(expected["grad_norm"][i].get<double>()).epsilon(tolerance.norm));
    check_weights(*net, kData / expected["final"].get<std::string>(), tolerance.weights);
  }
}

}  // namespace oracle_trainer_test
