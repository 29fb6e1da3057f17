// Invalid command lines, files and variables, each with the error that a person reads.
#include "hasten/base/text.h"
#include "unit/options/support.h"

namespace options_bad_input_test {

using namespace hasten;
using namespace hasten::test;

namespace {

struct BadLine {
  const char* arguments;  // after a model and dummy data, separated by blanks
  const char* code;
  const char* text;  // part of the message
};

const std::vector<BadLine> bad_lines = {
    // names
    {"--lerning_rate 1", "config.unknown-key",
     "unknown argument --lerning_rate. Hint: did you mean --learning_rate?"},
    {"--learning-rte 1", "config.unknown-key", "did you mean --learning_rate?"},
    {"--lr 1", "config.unknown-key", "did you mean --learning_rate?"},
    {"--epochs 1", "config.unknown-key", "did you mean --num_train_epochs?"},
    {"--batch_size 1", "config.unknown-key", "did you mean --per_device_train_batch_size?"},
    {"--train_file a.csv", "config.unknown-key", "did you mean --data?"},
    {"--bf17", "config.unknown-key", "did you mean --bf16?"},
    {"--no_bf17", "config.unknown-key", "did you mean --no_bf16?"},
    {"--no_seed", "config.unknown-key", "unknown argument --no_seed"},
    {"--Seed 1", "config.unknown-key", "did you mean --seed?"},
    {"--completely_different 1", "config.unknown-key", "--help lists every name"},
    {"--=1", "config.unknown-key", "unknown argument --"},
    {"--lerning_rate=1", "config.unknown-key", "unknown argument --lerning_rate. Hint"},
    // arguments that are not flags
    {"train.tsv", "config.unexpected-argument", "unexpected argument 'train.tsv'"},
    {"train.yaml", "config.unexpected-argument",
     "name a configuration file with --config_file train.yaml"},
    {"-s 1", "config.unexpected-argument", "unexpected argument '-s'"},
    {"--", "config.unexpected-argument", "unexpected argument '--'"},
    {"--bf16 maybe", "config.unexpected-argument",
     "unexpected argument 'maybe'. Hint: --bf16 takes true, false or no value"},
    {"--seed 1 2", "config.unexpected-argument", "unexpected argument '2'"},
    // missing values
    {"--seed", "config.missing-value",
     "--seed has no value: expected a whole number of at least 0"},
    {"--learning_rate --seed 1", "config.missing-value", "--learning_rate has no value"},
    {"--label_names", "config.missing-value",
     "--label_names has no value: expected names separated by commas"},
    {"--resume_from_checkpoint", "config.missing-value", "--resume_from_checkpoint has no value"},
    {"--config_file", "config.missing-value", "--config_file has no value"},
    // values of another type
    {"--seed 1.5", "config.bad-value", "--seed: got '1.5', expected a whole number of at least 0"},
    {"--seed=", "config.bad-value", "--seed: got 'unset'"},
    {"--max_steps 1e3", "config.bad-value", "--max_steps: got '1e3'"},
    {"--max_steps 99999999999999999999", "config.bad-value", "--max_steps"},
    {"--learning_rate fast", "config.bad-value",
     "--learning_rate: got 'fast', expected a number of at least 0"},
    {"--learning_rate 3e-5x", "config.bad-value", "--learning_rate"},
    {"--learning_rate nan", "config.bad-value", "--learning_rate"},
    {"--learning_rate inf", "config.bad-value", "--learning_rate"},
    {"--bf16=maybe", "config.bad-value", "--bf16: got 'maybe', expected true or false"},
    {"--no_bf16=true", "config.bad-value", "--no_bf16: got 'true', expected no value"},
    {"--lr_scheduler_type liner", "config.bad-value", "Hint: did you mean linear?"},
    {"--lr_scheduler_type Linear", "config.bad-value", "did you mean linear?"},
    {"--save_strategy never", "config.bad-value", "expected one of no, steps, epoch, best"},
    {"--eval_strategy best", "config.bad-value", "expected one of no, steps, epoch"},
    {"--optim adamw", "config.bad-value", "expected one of adamw_torch, adamw_torch_fused, sgd"},
    {"--log_level loud", "config.bad-value", "--log_level"},
    {"--lr_scheduler_kwargs power", "config.bad-value",
     "expected name=value,name=value or a flat JSON object"},
    {"--lr_scheduler_kwargs {\"a\":", "config.bad-value", "--lr_scheduler_kwargs"},
    {"--data a.txt", "config.bad-value",
     "a file ending in .tsv, .csv, .jsonl, .parquet, .arrow, .safetensors, or dummy"},
    {"--data a.json", "config.bad-value", "name a file with one JSON object per line .jsonl"},
    {"--weights model.bin", "config.bad-value", "expected a file ending in .safetensors"},
    // values out of range
    {"--learning_rate -1", "config.out-of-range",
     "--learning_rate: got '-1', expected a number of at least 0"},
    {"--per_device_train_batch_size 0", "config.out-of-range",
     "expected a whole number of at least 1"},
    {"--gradient_accumulation_steps 0", "config.out-of-range", "--gradient_accumulation_steps"},
    {"--max_steps -2", "config.out-of-range", "expected a whole number of at least -1"},
    {"--adam_beta2 1", "config.out-of-range", "expected a number in [0, 1)"},
    {"--label_smoothing_factor 1", "config.out-of-range", "expected a number in [0, 1)"},
    {"--save_total_limit 0", "config.out-of-range",
     "expected a whole number of at least 1, or none"},
    {"--warmup_ratio 1.5", "config.out-of-range",
     "--warmup_ratio: got '1.5', expected a number below 1"},
    {"--warmup_steps 1.5", "config.out-of-range", "warmup_steps: got 1.5"},
    {"--hidden_dropout 1", "config.out-of-range", "expected a number in [0, 1), or none"},
    {"--max_length 0", "config.out-of-range", "--max_length"},
    {"--report_to dashboard", "config.out-of-range",
     "--report_to: got 'dashboard', expected one or more of none, all, tensorboard, jsonl, csv, "
     "mlflow"},
    {"--logging_steps 0", "config.out-of-range", "logging_steps: got 0"},
    // known, but not supported yet
    {"--deepspeed x", "config.not-supported", "--deepspeed is not supported yet. Hint: each"},
    {"--weights_dtype float16", "config.bad-value",
     "--weights_dtype: got 'float16', expected one of float32, bfloat16"},
    {"--bf16 --fp16", "config.contradiction", "bf16 and fp16 are both set"},
    {"--activation_checkpointing_kwargs policy=full", "config.contradiction",
     "activation_checkpointing is false. Hint: use --activation_checkpointing"},
    {"--gradient_checkpointing --gradient_checkpointing_kwargs policy=cheap", "config.out-of-range",
     "activation_checkpointing_kwargs: policy: got 'cheap', expected one of full, selective"},
    {"--activation_checkpointing --activation_checkpointing_kwargs every=2", "config.unknown-key",
     "activation_checkpointing_kwargs: unknown key every"},
    {"--activation_checkpointing --activation_checkpointing_kwargs every_n_layers=0",
     "config.out-of-range", "expected a whole number of at least 1"},
    {"--optim paged_adamw_8bit", "config.not-supported",
     "--optim paged_adamw_8bit is not supported. Hint: use adamw_8bit with "
     "offload_optimizer_states"},
    {"--optim adamw_torch_4bit", "config.not-supported", "Hint: use adamw_8bit"},
    {"--optim adamw_8bit --optim_args embedding_bits=16", "config.out-of-range",
     "expected one of 8, 32"},
    {"--step_in_backward", "config.contradiction",
     "step_in_backward and max_grad_norm 1, which needs all gradients at once. Hint: use "
     "--max_grad_norm 0"},
    {"--step_in_backward --max_grad_norm 0 --gradient_accumulation_steps 2", "config.contradiction",
     "gradient_accumulation_steps 2"},
    {"--step_in_backward --max_grad_norm 0 --optim lamb", "config.contradiction", "optim lamb"},
    {"--step_in_backward --max_grad_norm 0 --elastic_ranks 2", "config.contradiction",
     "elastic_ranks"},
    {"--step_in_backward --max_grad_norm 0 --stop_on_nonfinite_loss", "config.contradiction",
     "stop_on_nonfinite_loss"},
    {"--step_in_backward --max_grad_norm 0 --auto_find_batch_size", "config.contradiction",
     "auto_find_batch_size"},
    {"--cuda_graph --fp16", "config.contradiction",
     "cuda_graph and fp16, because the host then decides whether the optimizer steps. Hint: use "
     "--bf16"},
    {"--cuda_graph --optim lion_32bit", "config.contradiction", "optim lion_32bit"},
    {"--cuda_graph --optim lbfgs", "config.contradiction", "optim lbfgs"},
    {"--cuda_graph --step_in_backward --max_grad_norm 0", "config.contradiction",
     "cuda_graph and step_in_backward"},
    {"--cuda_graph --offload_optimizer_states", "config.contradiction", "offload_optimizer_states"},
    {"--cuda_graph --activation_offloading", "config.contradiction", "activation_offloading"},
    {"--cuda_graph --stop_on_nonfinite_loss", "config.contradiction", "stop_on_nonfinite_loss"},
    {"--cuda_graph --elastic_ranks 2", "config.contradiction", "elastic_ranks"},
    {"--padding_free --neftune_noise_alpha 5", "config.contradiction",
     "padding_free and neftune_noise_alpha"},
    {"--offload_optimizer_states --optim lbfgs", "config.contradiction", "optim lbfgs"},
    {"--optim galore_adamw", "config.not-supported",
     "--optim galore_adamw is not supported. Hint: use adafactor"},
    {"--optim schedule_free_radam", "config.not-supported",
     "--optim schedule_free_radam is not supported. Hint: use schedule_free_adamw"},
    {"--optim adafacto", "config.bad-value", "did you mean adafactor?"},
    {"--optim rmsprop --optim_args momentun=0.9", "config.unknown-key", "did you mean momentum?"},
    {"--optim rmsprop --optim_args alpha=1", "config.out-of-range",
     "optim_args: alpha: got '1', expected a number in [0, 1)"},
    {"--optim stable_adamw --optim_args max_lr=1", "config.contradiction", "decouple_lr"},
    {"--lr_scheduler_type greedy", "config.contradiction", "greedy needs evaluations"},
    {"--debug underflow_overflow", "config.not-supported", "--debug is not supported. Hint: use"},
    {"--report_to none wandb", "config.not-supported", "--report_to wandb is not supported yet"},
    {"--fsdp full_shard", "config.not-supported", "--fsdp is not supported yet"},
    {"--deepspeed ds.json", "config.not-supported", "--deepspeed is not supported yet"},
    // contradictions
    {"--report_to none csv", "config.contradiction", "report_to names none and other trackers"},
    {"--warmup_steps 5 --warmup_ratio 0.1", "config.contradiction", "set the same option"},
    {"--eval_strategy steps --load_best_model_at_end", "config.missing",
     "load_best_model_at_end needs rows to evaluate. Hint: set --eval_data FILE"},
    {"--eval_strategy epoch --save_strategy best --metric_for_best_model loss", "config.missing",
     "save_strategy best needs rows to evaluate. Hint: set --eval_data FILE"},
    {"--do_eval", "config.missing", "do_eval needs rows"},
    {"--do_predict", "config.missing", "do_predict needs rows"},
    {"--eval_on_start", "config.missing", "eval_on_start needs rows"},
    {"--do_train false", "config.missing", "nothing to do"},
    {"--load_best_model_at_end", "config.contradiction", "needs evaluations"},
    {"--dataloader_prefetch_factor 2", "config.contradiction", "needs workers"},
    {"--lr_scheduler_type cosine_with_min_lr", "config.contradiction",
     "needs min_lr or min_lr_rate"},
    {"--lr_scheduler_kwargs power=2", "config.unknown-key", "linear takes none"},
    {"--dummy_length 600", "config.contradiction",
     "dummy_length 600 is more than max_length 512. Hint: use --dummy_length 512, or"},
    {"--data a.tsv --dummy_rows 5", "config.contradiction",
     "dummy_rows is only for dummy data: data is 'a.tsv'"},
    {"--num_train_epochs 0", "config.contradiction", "nothing to train"},
    {"--mlm_probability 0.2", "config.contradiction",
     "mlm_probability is only for masked-lm: task is text-classification"},
    {"--task masked-lm --mlm_probability 0", "config.out-of-range", "--mlm_probability"},
    {"--task masked-lm --num_labels 3", "config.contradiction", "num_labels is set"},
    {"--task token-classification --num_labels 1", "config.contradiction", "num_labels is 1"},
    {"--task token-classification --data a.tsv", "config.bad-value",
     "a file ending in .jsonl, .parquet, .arrow, .safetensors, or dummy, for token-classification"},
    {"--data a.txt", "config.bad-value", "for text-classification"},
    // files
    {"--config_file /nowhere/a.yaml", "io.cannot-read", "No such file or directory"},
};

struct BadFile {
  const char* name;
  const char* content;
  const char* code;
  const char* text;  // part of the message, after the folder
};

const std::vector<BadFile> bad_files = {
    {"a.yaml", "seed: 1\nlerning_rate: 1\n", "config.unknown-key",
     "/a.yaml:2: unknown key lerning_rate. Hint: did you mean learning_rate?"},
    {"a.yaml", "seed: 1\n\nseed: 2\n", "config.duplicate-key",
     "/a.yaml:3: seed is given twice. Hint: the first is at "},
    {"a.yaml", "warmup_ratio: 0.1\nwarmup_steps: 10\n", "config.contradiction",
     "/a.yaml:2: warmup_steps and warmup_ratio set the same option"},
    {"a.yaml", "max_steps: many\n", "config.bad-value",
     "/a.yaml:1: max_steps: got 'many', expected a whole number"},
    {"a.yaml", "max_steps: 1.0\n", "config.bad-value", "max_steps: got '1.0'"},
    {"a.yaml", "max_steps: [1, 2]\n", "config.bad-value", "max_steps: got '1,2'"},
    {"a.yaml", "output_dir: [a, b]\n", "config.bad-value",
     "output_dir: got 'a,b', expected a string"},
    {"a.yaml", "learning_rate: {peak: 1}\n", "config.bad-value", "learning_rate: got 'peak=1'"},
    {"a.yaml", "bf16: 2\n", "config.bad-value", "bf16: got '2', expected true or false"},
    {"a.yaml", "eval_strategy: false\n", "config.bad-value",
     "eval_strategy: got 'false', expected one of no, steps, epoch"},
    {"a.yaml", "save_total_limit: 0\n", "config.out-of-range",
     "/a.yaml:1: save_total_limit: got '0'"},
    {"a.yaml", "# one\ndeepspeed: x\n", "config.not-supported",
     "/a.yaml:2: deepspeed is not supported yet"},
    {"a.yaml", "optim: lomo\n", "config.not-supported",
     "/a.yaml:1: optim lomo is not supported. Hint: use adafactor"},
    {"a.yaml", "fsdp_config: {a: {b: 1}}\n", "config.not-supported",
     "fsdp_config is not supported yet"},
    {"a.yaml", "seed: 1\n bf16: true\n", "config.syntax", "/a.yaml:2: "},
    {"a.yaml", "seed: [1\n", "config.syntax", "/a.yaml:"},
    {"a.yaml", "- seed\n", "config.syntax", "expected one map from option names to values"},
    {"a.yaml", "seed\n", "config.syntax", "expected one map"},
    {"a.yaml", "seed: 1\n---\nseed: 2\n", "config.syntax",
     "/a.yaml: got more than one YAML document, expected one"},
    {"a.yaml", "[a, b]: 1\n", "config.syntax", "/a.yaml:1: expected one map"},
    {"a.yaml", "training:\n  seed: 1\n", "config.unknown-key", "/a.yaml:1: unknown key training"},
    {"a.yaml", "config_file: b.yaml\n", "config.unknown-key",
     "config_file cannot be set in a configuration file"},
    {"a.yaml", "print_config: true\n", "config.unknown-key",
     "print_config cannot be set in a configuration file"},
    {"a.yaml", "lr_scheduler_type: cosine\nlr_scheduler_kwargs: {num_cycle: 1}\n",
     "config.unknown-key", "did you mean num_cycles?"},
    {"a.yaml", "lr_scheduler_type: cosine\nlr_scheduler_kwargs: {num_cycles: 1, num_cycles: 2}\n",
     "config.duplicate-key", "num_cycles is given twice"},
    {"a.yaml", "label_names: [a, [b]]\n", "config.syntax",
     "/a.yaml:1: got a list that contains [...], expected names in the list"},
    {"a.yaml", ",seed: 1\n", "config.syntax", "more than one YAML document"},
    {"a.yaml", "{seed: 1} bf16: true\n", "config.syntax", "/a.yaml:"},
    {"a.json", "{\"seed\": 1,\n \"lerning_rate\": 1}", "config.unknown-key",
     "/a.json:2: unknown key lerning_rate"},
    {"a.json", "{\"seed\": 1,\n \"seed\": 2}", "config.duplicate-key", "seed is given twice"},
    {"a.json", "{\"seed\": 1,\n \"bf16\": tru}", "config.syntax", "/a.json:2: got invalid JSON"},
    {"a.json", "", "config.syntax", "/a.json:1: got invalid JSON"},
    {"a.json", "[1]", "config.syntax", "expected one map"},
    {"a.json", "{\"seed\": \"x\"}", "config.bad-value", "/a.json:1: seed: got 'x'"},
    {"a.json", "{\"max_steps\": 1.5}", "config.bad-value", "max_steps: got '1.5'"},
    {"a.json", "{\"output_dir\": {\"a\": 1}}", "config.bad-value", "output_dir: got 'a=1'"},
};

}  // namespace

TEST_CASE("bad input: the error for each invalid command line says what is wrong") {
  CHECK(bad_lines.size() + bad_files.size() >= 60);
  for (const BadLine& line : bad_lines) {
    CAPTURE(line.arguments);
    const auto caught = error_of([&] { parse_with_model(split(line.arguments, ' ')); });
    CHECK(caught.code == line.code);
    CHECK_MESSAGE(contains(caught.text, line.text), caught.text);
  }
}

TEST_CASE("bad input: the error for each invalid file says where it is wrong") {
  for (const BadFile& bad : bad_files) {
    CAPTURE(bad.content);
    const TemporaryFile file(bad.name, bad.content);
    const auto caught = error_of([&] { parse_with_model({"--config_file", file.path()}); });
    CHECK(caught.code == bad.code);
    CHECK_MESSAGE(contains(caught.text, bad.text), caught.text);
    CHECK(caught.exit_code == 2);
  }
}

TEST_CASE("bad input: the error for each invalid variable names it") {
  const auto text = [](const char* name, const char* value) {
    return error_of([&] { parse_with_model({}, {{name, value}}); }).text;
  };
  CHECK(text("HASTEN_SEED", "x") == "HASTEN_SEED: got 'x', expected a whole number of at least 0");
  CHECK(text("HASTEN_LEARNING_RATE", "-1") ==
        "HASTEN_LEARNING_RATE: got '-1', expected a number of at least 0");
  CHECK(text("HASTEN_OPTIM", "grokadamw") ==
        "HASTEN_OPTIM grokadamw is not supported. Hint: use adamw_torch_fused");
  CHECK(contains(text("HASTEN_MAX_STEP", "1"), "did you mean HASTEN_MAX_STEPS?"));
  CHECK(contains(text("HASTEN_CONFIG_FILE", "/nowhere"),
                 "configuration file /nowhere: got No such file"));
}

TEST_CASE("bad input: a run without a model or data is refused") {
  CHECK(
      error_of([] { parse({}); }).text ==
      "--model is missing. Hint: set --model to a folder or to one of bert-base, bert-large, gpt2, "
      "gpt2-medium, gpt2-large, gpt2-xl, llama-2-7b, llama-3-8b, llama-3.2-1b, llama-3.2-3b");
  CHECK(error_of([] {
          parse({"--model", "m"});
        }).text == "--data is missing. Hint: set --data to a file, or to dummy");
  CHECK(error_of([] { parse({"--model", "m", "--do_eval"}); }).code == "config.missing");
}

}  // namespace options_bad_input_test
