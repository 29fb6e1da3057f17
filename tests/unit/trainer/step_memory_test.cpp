// Training steps for which memory runs out: the error says where, how much, and what to try.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include "hasten/anatomy/dry_run.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/trainer/classification_data.h"
#include "hasten/trainer/trainer.h"
#include "unit/trainer/tiny.h"

namespace trainer_step_memory_test {

using namespace hasten;
using namespace hasten::tiny_runs;

namespace {

// A model that tries to allocate more memory than there is.
struct OutOfMemoryModel : BertForSequenceClassification {
  using BertForSequenceClassification::BertForSequenceClassification;
  ModelOutput forward(const TensorDict&) override {
    return {.loss = at::empty({std::int64_t{1} << 46})};
  }
};

// A model that runs out of memory with more than two rows.
struct LimitedModel : BertForSequenceClassification {
  using BertForSequenceClassification::BertForSequenceClassification;
  ModelOutput forward(const TensorDict& batch) override {
    ModelOutput out = BertForSequenceClassification::forward(batch);
    const std::int64_t rows = batch.at("input_ids").size(0);
    const at::Tensor weight = named_parameters()["classifier.weight"];
    const at::Tensor large = weight.sum() * at::ones({rows, 1 << 20});
    // Simulates an allocator that runs out of memory. A dry run allocates nothing and continues.
    if (rows > 2 && !DryRun::active())
      throw c10::OutOfMemoryError(
          {"allocate", "allocator", 1},
          str("can't allocate memory: you tried to allocate ", rows * (4 << 20), " bytes."));
    out.loss = out.loss + large.mean();
    return out;
  }
};

}  // namespace

TEST_CASE("trainer: an out-of-memory error says in which step, how much, and what to try") {
  const Folder folder;
  TrainingArguments args = three_epochs(folder);
  args.gradient_accumulation_steps = 2;
  Trainer trainer(std::make_shared<OutOfMemoryModel>(tiny()), args,
                  {.train_dataset = TrainerDataset(rows(8)),
                   .eval_dataset = TrainerDataset(rows(8)),
                   .log_sink = [](std::string_view) {}});
  try {
    trainer.train();
    FAIL("expected an error");
  } catch (const MemoryError& error) {
    const std::string text = error.what();
    CHECK(error.code() == "trainer.out-of-memory");
    CHECK_MESSAGE(text.find("out of memory in training step 1") == 0, text);
    CHECK_MESSAGE(text.find("281474976710656 bytes") != std::string::npos, text);
    CHECK_MESSAGE(text.find("halve per_device_train_batch_size (4) and double "
                            "gradient_accumulation_steps (2)") != std::string::npos,
                  text);
  }
  try {
    trainer.evaluate();
    FAIL("expected an error");
  } catch (const MemoryError& error) {
    const std::string text = error.what();
    CHECK(text.find("out of memory in an evaluation batch") == 0);
    CHECK_MESSAGE(text.find(str("per_device_eval_batch_size (", args.per_device_eval_batch_size,
                                ")")) != std::string::npos,
                  text);
    CHECK_MESSAGE(text.find("per_device_train_batch_size") == std::string::npos, text);
  }
  args.per_device_train_batch_size = 1;
  Trainer of_rows(std::make_shared<OutOfMemoryModel>(tiny()), args,
                  {.train_dataset = TrainerDataset(rows(8)), .log_sink = [](std::string_view) {}});
  try {
    of_rows.train();
    FAIL("expected an error");
  } catch (const MemoryError& error) {
    const std::string text = error.what();
    CHECK_MESSAGE(text.find("halve") == std::string::npos, text);
    CHECK_MESSAGE(text.find("per_device_train_batch_size is 1 already") != std::string::npos, text);
  }
}

TEST_CASE("trainer: an out-of-memory error names the place and a batch that would have fitted") {
  const Folder folder;
  TrainingArguments args = three_epochs(folder);
  Trainer trainer(new_model<LimitedModel>(), args,
                  {.train_dataset = TrainerDataset(rows(8)), .log_sink = [](std::string_view) {}});
  try {
    trainer.train();
    FAIL("expected an error");
  } catch (const MemoryError& error) {
    const std::string text = error.what();
    CHECK(error.code() == "trainer.out-of-memory");
    CHECK_MESSAGE(text.find("memory runs out in the forward pass, in aten::") != std::string::npos,
                  text);
    CHECK_MESSAGE(text.find("of classifier: it requests 16.8 MB for ") != std::string::npos, text);
    CHECK_MESSAGE(text.find("a batch of ") != std::string::npos, text);
    CHECK_MESSAGE(text.find("halve per_device_train_batch_size (4)") != std::string::npos, text);
  }
}

}  // namespace trainer_step_memory_test
