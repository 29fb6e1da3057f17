#include "unit/options/support.h"

namespace options_contradictions_test {

using namespace hasten;
using namespace hasten::test;

namespace {

struct Case {
  TrainingArguments arguments;
  const char* code;
  const char* text;
};

constexpr auto contradiction = "config.contradiction";
constexpr auto out_of_range = "config.out-of-range";
constexpr auto steps = IntervalStrategy::steps;
constexpr auto epoch = IntervalStrategy::epoch;

}  // namespace

TEST_CASE("contradictions: the error for a struct filled in C++ says what is wrong") {
  const std::vector<Case> cases = {
      {{.per_device_train_batch_size = 0},
       out_of_range,
       "per_device_train_batch_size: got 0, expected a whole number of at least 1"},
      {{.learning_rate = -1},
       out_of_range,
       "learning_rate: got -1, expected a number of at least 0"},
      {{.adam_beta1 = 1}, out_of_range, "adam_beta1: got 1, expected a number in [0, 1)"},
      {{.report_to = {"wandb"}},
       out_of_range,
       "report_to: got wandb, expected one or more of none, all, tensorboard, jsonl, csv, mlflow"},
      {{.output_dir = ""}, out_of_range, "output_dir: got '', expected a folder"},
      {{.num_train_epochs = 0},
       contradiction,
       "nothing to train: max_steps is -1 and num_train_epochs is 0"},
      {{.bf16 = true, .fp16 = true}, contradiction, "bf16 and fp16 are both set. Hint: keep bf16"},
      {{.optim = OptimizerName::lbfgs, .fp16 = true},
       contradiction,
       "fp16 and optim lbfgs, which computes the loss of a step several times"},
      {{.fp16 = true, .weights_dtype = WeightsType::bfloat16},
       contradiction,
       "weights_dtype bfloat16 and fp16, which needs weights in float32"},
      {{.optim = OptimizerName::sgd, .weights_dtype = WeightsType::bfloat16},
       contradiction,
       "weights_dtype bfloat16 and optim sgd. Hint: use --optim adamw_torch"},
      {{.bf16_full_eval = true, .fp16_full_eval = true}, contradiction, "both set"},
      {{.logging_steps = 0}, out_of_range, "logging_steps: got 0"},
      {{.logging_steps = 2.5},
       out_of_range,
       "a whole number of at least 1, or a share of all steps in (0, 1)"},
      {{.save_steps = 1.5}, out_of_range, "save_steps: got 1.5"},
      {{.eval_strategy = steps, .eval_steps = 1.5}, out_of_range, "eval_steps: got 1.5"},
      {{.logging_strategy = IntervalStrategy::no, .logging_steps = 0, .eval_strategy = steps},
       out_of_range,
       "logging_steps, the default of eval_steps: got 0"},
      {{.warmup_steps = 10.5},
       out_of_range,
       "warmup_steps: got 10.5, expected a whole number, or a share"},
      {{.load_best_model_at_end = true}, contradiction, "load_best_model_at_end needs evaluations"},
      {{.eval_strategy = epoch, .load_best_model_at_end = true},
       contradiction,
       "to be equal: they are steps and epoch. Hint: use --save_strategy epoch"},
      {{.eval_strategy = steps, .eval_steps = 200, .load_best_model_at_end = true},
       contradiction,
       "multiple of eval_steps: they are 500 and 200. Hint: use --save_steps 600"},
      {{.eval_strategy = steps, .eval_steps = 1000, .load_best_model_at_end = true},
       contradiction,
       "they are 500 and 1000. Hint: use --save_steps 1000"},
      {{.eval_strategy = steps, .eval_steps = 0.1, .load_best_model_at_end = true},
       contradiction,
       "to be both steps or both shares"},
      {{.eval_strategy = steps,
        .eval_steps = 0.2,
        .save_steps = 0.3,
        .load_best_model_at_end = true},
       contradiction,
       "multiple"},
      {{.save_strategy = SaveStrategy::best, .metric_for_best_model = "f1"},
       contradiction,
       "save_strategy best needs evaluations"},
      {{.eval_strategy = epoch, .save_strategy = SaveStrategy::best},
       contradiction,
       "needs metric_for_best_model"},
      {{.eval_strategy = epoch,
        .prediction_loss_only = true,
        .save_strategy = SaveStrategy::epoch,
        .load_best_model_at_end = true,
        .metric_for_best_model = "f1"},
       contradiction,
       "never computed"},
      {{.save_total_limit = 0},
       out_of_range,
       "save_total_limit: got 0, expected a whole number of at least 1"},
      {{.dataloader_prefetch_factor = 2},
       contradiction,
       "dataloader_prefetch_factor needs workers"},
      {{.overwrite_output_dir = true, .resume_from_checkpoint = "true"},
       contradiction,
       "starts over"},
      {{.optim = OptimizerName::lbfgs, .weight_decay = 0.1},
       contradiction,
       "weight_decay is 0.1, and lbfgs has none. Hint: use --weight_decay 0"},
      {{.gradient_accumulation_steps = 2, .optim = OptimizerName::lbfgs},
       contradiction,
       "gradient_accumulation_steps is 2, and lbfgs computes the loss of a step several times"},
      {{.learning_rate = std::numeric_limits<double>::quiet_NaN()},
       out_of_range,
       "learning_rate: got nan"},
      {{.max_grad_norm = std::numeric_limits<double>::infinity()},
       out_of_range,
       "max_grad_norm: got inf"},
  };
  for (const Case& each : cases) {
    CAPTURE(each.text);
    const auto caught = error_of([&] { validate(each.arguments); });
    CHECK(caught.code == each.code);
    CHECK_MESSAGE(contains(caught.text, each.text), caught.text);
    CHECK(caught.exit_code == 2);
  }
}

TEST_CASE("contradictions: valid combinations pass") {
  const std::vector<TrainingArguments> good = {
      {.num_train_epochs = 0, .max_steps = 5},
      {.eval_strategy = steps,
       .eval_steps = 0.1,
       .save_steps = 0.3,
       .load_best_model_at_end = true},
      {.eval_strategy = steps, .eval_steps = 250, .load_best_model_at_end = true},
      {.eval_strategy = epoch, .save_strategy = SaveStrategy::best, .load_best_model_at_end = true},
      {.logging_strategy = epoch, .logging_steps = 0},
      {.save_strategy = SaveStrategy::no, .save_steps = 1.5},
      {.dataloader_num_workers = 1, .dataloader_prefetch_factor = 2},
      {.overwrite_output_dir = true, .resume_from_checkpoint = "false"},
      {.eval_strategy = epoch,
       .prediction_loss_only = true,
       .save_strategy = SaveStrategy::epoch,
       .load_best_model_at_end = true},
  };
  for (const TrainingArguments& arguments : good) CHECK_NOTHROW(validate(arguments));
}

}  // namespace options_contradictions_test
