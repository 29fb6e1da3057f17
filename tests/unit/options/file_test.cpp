#include "options/sources.h"
#include "unit/options/support.h"
#include "unit/peak_memory.h"

namespace options_file_test {

using namespace hasten;
using namespace hasten::test;

namespace {
TrainConfiguration with_file(const std::string& name, const std::string& content,
                             const Texts& more = {}) {
  const TemporaryFile file(name, content);
  Texts arguments = {"--config_file", file.path()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return parse_with_model(arguments);
}
}  // namespace

TEST_CASE("file: YAML gives values of every type") {
  const auto run = with_file("train.yaml",
                             "# a run\n"
                             "learning_rate: 3e-5\n"
                             "max_steps: 20\n"
                             "bf16: yes\n"
                             "eval_strategy: no      # a name here, not a truth\n"
                             "label_names: [labels, scores]\n"
                             "report_to:\n  - none\n"
                             "output_dir: \"a b\"\n"
                             "save_total_limit: ~\n"
                             "seed: null\n"
                             "lr_scheduler_type: warmup_stable_decay\n"
                             "lr_scheduler_kwargs:\n  num_decay_steps: 5\n  decay_type: linear\n");
  CHECK(run.arguments.learning_rate == 3e-5);
  CHECK(run.arguments.max_steps == 20);
  CHECK(run.arguments.bf16);
  CHECK(run.arguments.eval_strategy == IntervalStrategy::no);
  CHECK(run.arguments.label_names == Texts{"labels", "scores"});
  CHECK(run.arguments.output_dir == "a b");
  CHECK_FALSE(run.arguments.save_total_limit.has_value());
  CHECK(run.arguments.seed == 42);
  CHECK(run.arguments.lr_scheduler_kwargs ==
        Kwargs{{"num_decay_steps", 5}, {"decay_type", "linear"}});
}

TEST_CASE("file: JSON gives values of every type") {
  const auto run =
      with_file("train.json",
                R"({"learning_rate": 3e-5, "max_steps": 20, "bf16": true, "eval_strategy": "no",
                                 "label_names": ["labels", "scores"], "report_to": [], "output_dir": "a b",
                                 "save_total_limit": null, "lr_scheduler_type": "cosine",
                                 "lr_scheduler_kwargs": {"num_cycles": 1.5}})");
  CHECK(run.arguments.learning_rate == 3e-5);
  CHECK(run.arguments.max_steps == 20);
  CHECK(run.arguments.bf16);
  CHECK(run.arguments.label_names == Texts{"labels", "scores"});
  CHECK(run.arguments.report_to.empty());
  CHECK(run.arguments.output_dir == "a b");
  CHECK(run.arguments.lr_scheduler_kwargs == Kwargs{{"num_cycles", 1.5}});
}

TEST_CASE("file: an empty file changes nothing") {
  CHECK(with_file("a.yaml", "").arguments.seed == 42);
  CHECK(with_file("a.yaml", "# nothing\n---\n").arguments.seed == 42);
  CHECK(with_file("a.json", "{}").arguments.seed == 42);
}

TEST_CASE("file: an alias has the value of its anchor") {
  const auto run = with_file("a.yaml", "seed: &it 7\ndata_seed: *it\n");
  CHECK(run.arguments.seed == 7);
  CHECK(run.arguments.data_seed == 7);
}

TEST_CASE("file: lines are counted from one, in YAML and in JSON") {
  const auto yaml = config::read_yaml("\nseed: 1\n# note\nbf16: true\n", "a.yaml");
  REQUIRE(yaml.size() == 2);
  CHECK(yaml[0].origin.where == "a.yaml:2");
  CHECK(yaml[1].origin.where == "a.yaml:4");
  const auto json = config::read_json("{\n \"run_name\": \"seed\",\n \"seed\" : 1\n}", "a.json");
  REQUIRE(json.size() == 2);
  CHECK(json[0].origin.where == "a.json:2");
  CHECK(json[1].origin.where == "a.json:3");
  const auto nested = config::read_json(
      "{\n \"lr_scheduler_kwargs\": {\n  \"power\": 2},\n \"power\": 1\n}", "a.json");
  REQUIRE(nested.size() == 2);
  CHECK(nested[0].places.at("power") == "a.json:3");
  CHECK(nested[1].origin.where == "a.json:4");
}

TEST_CASE("file: the error for a repeated JSON key names the line of the first one") {
  const auto first = [](const std::string& text) {
    return error_of([&] { config::read_json(text, "a.json"); }).text;
  };
  const std::string expected = "a.json: seed is given twice. Hint: the first is at a.json:3";
  CHECK(first("{\"a\": {\n \"seed\": 1},\n \"seed\": 2,\n \"seed\": 3}") == expected);
  CHECK(first("{\"seed\": 1,\n \"a\": {\n \"seed\": 2,\n \"seed\": 3}}") == expected);
  CHECK(first("{\"run_name\": \"\\\"seed\\\":\",\n\n \"seed\": 2,\n \"seed\": 3}") == expected);
}

TEST_CASE("file: a missing file or a folder is an error of the system") {
  const auto missing = error_of([] { config::read_option_file("/nowhere/train.yaml"); });
  CHECK(missing.code == "io.cannot-read");
  CHECK(missing.exit_code == 4);
  CHECK(missing.text ==
        "configuration file /nowhere/train.yaml: got No such file or directory, expected a "
        "readable file");
  CHECK(error_of([] { config::read_option_file("/tmp"); }).code == "io.cannot-read");
}

TEST_CASE("file: a file larger than 128 KiB is refused") {
  const TemporaryFile file("big.yaml", std::string((128 << 10) + 1, '#'));
  CHECK(error_of([&] { config::read_option_file(file.path()); }).code == "config.file-too-large");
  const TemporaryFile largest("big.yaml", std::string(128 << 10, '#'));
  CHECK(config::read_option_file(largest.path()).empty());
}

TEST_CASE("file: a file of as many keys as it can have takes at most 16 MiB more than its size") {
  std::string yaml, json = "{\"k\": 1";
  while (yaml.size() + 16 < 128 << 10) yaml += "k" + std::to_string(yaml.size()) + ": 1\n";
  while (json.size() + 16 < 128 << 10) json += ",\n\"k" + std::to_string(json.size()) + "\":12345";
  json += "}";
  const auto read = [](const char* name, const std::string& text) {
    const TemporaryFile file(name, text);
    const auto before = peak_memory_kib();
    const std::vector<config::Assignment> keys = config::read_option_file(file.path());
    CHECK(peak_memory_kib() - before < kMemoryPerByte * ((16 << 10) + 128));
    const auto lines = std::count(text.begin(), text.end(), '\n') + (text.back() == '\n' ? 0 : 1);
    CHECK(static_cast<long>(keys.size()) == lines);
    CHECK(ends_with(keys.back().origin.where, str(name, ":", lines)));
  };
  read("many.json", json);
  read("many.yaml", yaml);
}

TEST_CASE("file: aliases of aliases are not expanded") {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 30; ++i) {
    const std::string last = "*a" + std::to_string(i - 1), name = "a" + std::to_string(i);
    text += name + ": &" + name + " {l: " + last + ", m: " + last + ", n: " + last + "}\n";
  }
  CHECK(config::read_yaml(text, "a.yaml").size() == 30);
}

TEST_CASE("file: malicious input ends in an error, not in a crash") {
  for (const std::string& text :
       {std::string(100'000, '['), std::string(100'000, '{'), std::string("\0\0\0", 3),
        std::string("\xff\xfe\x80"), std::string("? a\n: b"), std::string("*unknown"),
        std::string("a: *b"), std::string("!!python/object:os.system {}"), std::string("&a [*a]"),
        std::string("a: {b: {c: d}}"), std::string("- 1")}) {
    CAPTURE(text.substr(0, 20));
    CHECK_NOTHROW(error_of([&] { config::read_yaml(text, "a.yaml"); }));
    CHECK_NOTHROW(error_of([&] { config::read_json(text, "a.json"); }));
  }
}

}  // namespace options_file_test
