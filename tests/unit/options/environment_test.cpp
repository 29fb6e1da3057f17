#include <cstdlib>

#include "unit/options/support.h"

namespace options_environment_test {

using namespace hasten;
using namespace hasten::test;

TEST_CASE("environment: HASTEN_NAME sets the option of that name") {
  const auto run = parse_with_model(
      {}, {{"HASTEN_LEARNING_RATE", "3e-5"}, {"HASTEN_BF16", "1"}, {"HASTEN_LABEL_NAMES", "a,b"}});
  CHECK(run.arguments.learning_rate == 3e-5);
  CHECK(run.arguments.bf16);
  CHECK(run.arguments.label_names == Texts{"a", "b"});
  CHECK(run.notices.empty());
}

TEST_CASE("environment: an empty variable counts as unset") {
  CHECK(parse_with_model({}, {{"HASTEN_SEED", ""}, {"HASTEN_LERNING_RATE", ""}}).arguments.seed ==
        42);
}

TEST_CASE("environment: variables of the build and foreign ones are accepted") {
  const auto run = parse_with_model({}, {{"HASTEN_CACHE", "/c"},
                                         {"HASTEN_LIBTORCH", "/l"},
                                         {"HASTEN_MINILM", "/m"},
                                         {"HOME", "/"},
                                         {"HASTEN_CPU_KERNELS", "avx2"},
                                         {"HASTEN_CUDA_KERNELS", "1"}});
  CHECK(run.notices.empty());
}

TEST_CASE("environment: a name near an option is an error, and any other name is a notice") {
  const auto near = error_of([] { parse_with_model({}, {{"HASTEN_LERNING_RATE", "1"}}); });
  CHECK(near.code == "config.unknown-key");
  CHECK(near.text == "unknown key HASTEN_LERNING_RATE. Hint: did you mean HASTEN_LEARNING_RATE?");
  const auto far = parse_with_model({}, {{"HASTEN_SOMETHING_ELSE_ALTOGETHER", "1"}});
  CHECK(
      far.notices ==
      Texts{
          "environment variable HASTEN_SOMETHING_ELSE_ALTOGETHER is ignored: it is not an option"});
}

TEST_CASE("environment: a variable may name a file, and flags override it") {
  const TemporaryFile file("a.yaml", "seed: 7\n"), other("b.yaml", "data_seed: 9\n");
  const config::Environment environment = {{"HASTEN_CONFIG_FILE", file.path()}};
  CHECK(parse_with_model({}, environment).arguments.seed == 7);
  const auto run = parse_with_model({"--config_file", other.path()}, environment);
  CHECK(run.arguments.seed == 42);
  CHECK(run.arguments.data_seed == 9);
}

TEST_CASE("environment: a flag accepts Accelerate's truth values, and any other text is an error") {
  const auto flag = [](const std::string& value) {
    return config::environment_flag({{"ACCELERATE_USE_CPU", value}}, "ACCELERATE_USE_CPU");
  };
  for (const char* yes : {"y", "yes", "t", "true", "on", "1", "YES", "True"}) {
    CAPTURE(yes);
    CHECK(flag(yes) == true);
  }
  for (const char* no : {"n", "no", "f", "false", "off", "0", "No", "FALSE"}) {
    CAPTURE(no);
    CHECK(flag(no) == false);
  }
  CHECK_FALSE(flag("").has_value());
  CHECK_FALSE(config::environment_flag({}, "ACCELERATE_USE_CPU").has_value());
  const auto caught = error_of([&] { flag("maybe"); });
  CHECK(caught.code == "config.bad-value");
  CHECK(caught.text == "ACCELERATE_USE_CPU: got 'maybe', expected true or false");
}

TEST_CASE("environment: the environment of the process is read") {
  setenv("HASTEN_TEST_OF_ENVIRONMENT", "a=b", 1);
  const auto environment = config::process_environment();
  unsetenv("HASTEN_TEST_OF_ENVIRONMENT");
  REQUIRE(environment.count("HASTEN_TEST_OF_ENVIRONMENT") == 1);
  CHECK(environment.at("HASTEN_TEST_OF_ENVIRONMENT") == "a=b");
  CHECK(environment.count("PATH") == 0);
}

}  // namespace options_environment_test
