#include "hasten/base/text.h"
#include "unit/options/support.h"

namespace options_resolved_text_test {

using namespace hasten;
using namespace hasten::test;

TEST_CASE("resolved text: it shows the values that differ from the defaults and their sources") {
  const auto run = parse_with_model({"--learning_rate", "3e-5"}, {{"HASTEN_BF16", "1"}});
  CHECK(resolved_text(run, config::ValueFilter::changed) ==
        "model: bert-base             # --model\n"
        "data: dummy                  # --data\n"
        "do_train: true               # derived from the command\n"
        "learning_rate: 3e-05         # --learning_rate\n"
        "bf16: true                   # HASTEN_BF16\n"
        "enable_jit_checkpoint: true  # derived from the command\n");
}

TEST_CASE("resolved text: it shows every value that has a field, and no other") {
  const std::string all = resolved_text(parse_with_model({}), config::ValueFilter::all);
  CHECK(contains(all, "\nseed: 42"));
  CHECK(contains(all, "\ndata_seed: null"));
  CHECK(contains(all, "\nreport_to: [none]"));
  CHECK_FALSE(contains(all, "print_config"));
  CHECK_FALSE(contains(all, "push_to_hub"));
  CHECK_FALSE(contains(all, "deepspeed"));
}

TEST_CASE("resolved text: reading it as a file gives the same values") {
  const auto run = parse_with_model({"--eval_data",
                                     "a b.tsv",
                                     "--eval_strategy",
                                     "steps",
                                     "--eval_steps",
                                     "0.1",
                                     "--run_name",
                                     "a: \"b\" # c",
                                     "--text_pair_column=",
                                     "--label_names",
                                     "null,no",
                                     "--lr_scheduler_type",
                                     "polynomial",
                                     "--lr_scheduler_kwargs",
                                     "power=2,lr_end=0",
                                     "--output_dir",
                                     "{x}",
                                     "--save_total_limit",
                                     "3",
                                     "--disable_tqdm",
                                     "--report_to=",
                                     "--label_column",
                                     "null",
                                     "--text_column",
                                     "~"});
  const std::string text = resolved_text(run, config::ValueFilter::all);
  const TemporaryFile file("again.yaml", text);
  const auto again = parse({"--config_file", file.path()});
  REQUIRE(again.values.size() == run.values.size());
  for (std::size_t i = 0; i < run.values.size(); ++i) {
    CAPTURE(run.values[i].name);
    if (run.values[i].name != "config_file") CHECK(again.values[i].value == run.values[i].value);
  }
  CHECK(to_json(again.arguments) == to_json(run.arguments));
}

}  // namespace options_resolved_text_test
