// The configuration file that is used if the user names none.
#include "machine/default_file.h"

#include "hasten/base/files.h"
#include "hasten/options/launch_options.h"
#include "unit/options/support.h"

namespace machine_default_file_test {

using namespace hasten;

namespace {

LaunchConfiguration parse_arguments(const std::vector<std::string>& arguments,
                                    const config::Environment& environment) {
  return parse_launch(arguments, environment);
}

void put(const std::filesystem::path& file, const std::string& text) {
  make_directories(file.parent_path());
  write_file_atomically(file, text);
}

}  // namespace

TEST_CASE("default file: it is in hasten's home, or else in the user's cache") {
  using config::default_file;
  CHECK(default_file({{"HASTEN_HOME", "/a"}, {"XDG_CACHE_HOME", "/b"}, {"HOME", "/c"}}) ==
        "/a/default_config.yaml");
  CHECK(default_file({{"XDG_CACHE_HOME", "/b"}, {"HOME", "/c"}}) ==
        "/b/hasten/default_config.yaml");
  CHECK(default_file({{"HOME", "/c"}}) == "/c/.cache/hasten/default_config.yaml");
  CHECK(default_file({{"HASTEN_HOME", "~/h"}, {"HOME", "/c"}}) == "/c/h/default_config.yaml");
  CHECK(default_file({{"HASTEN_HOME", ""}, {"XDG_CACHE_HOME", ""}}).empty());
  CHECK(default_file({}).empty());
  CHECK(config::accelerate_default_files({{"HF_HOME", "/hf"}, {"HOME", "/c"}}).front() ==
        "/hf/accelerate/default_config.yaml");
  CHECK(config::accelerate_default_files({{"HOME", "/c"}}).back() ==
        "/c/.cache/huggingface/accelerate/default_config.json");
  CHECK(config::find_default_file({}).empty());
}

TEST_CASE("default file: launch reads hasten's, or else Accelerate's, and says so") {
  const TemporaryDirectory home;
  const config::Environment environment = {{"HOME", home.path().string()}};
  const auto cache = home.path() / ".cache";
  CHECK(parse_arguments({"p"}, environment).notices.empty());

  put(cache / "huggingface/accelerate/default_config.json", "{\"num_processes\": 2}");
  const auto json = parse_arguments({"p"}, environment);
  CHECK(json.options.num_processes == 2);
  REQUIRE(json.notices.size() == 1);
  CHECK(test::contains(json.notices[0],
                       "default_config.json is read because no configuration file is named"));

  put(cache / "huggingface/accelerate/default_config.yaml", "num_processes: 3\n");
  CHECK(parse_arguments({"p"}, environment).options.num_processes == 3);

  put(cache / "hasten/default_config.yaml", "debug: true\nnum_processes: 4\n");
  const auto own = parse_arguments({"p"}, environment);
  CHECK(own.options.num_processes == 4);
  bool names_source = false;
  for (const config::ResolvedValue& value : own.values) {
    if (value.name != "num_processes") continue;
    names_source =
        config::to_text(value.origin) == (cache / "hasten/default_config.yaml").string() + ":2";
  }
  CHECK(names_source);

  // An option that names another file, or that allows no file, overrides the default file.
  const test::TemporaryFile named("named.yaml", "num_processes: 5\n");
  CHECK(parse_arguments({"--config_file", named.path(), "p"}, environment).options.num_processes ==
        5);
  CHECK(!parse_arguments({"--no_config_file", "p"}, environment).options.num_processes.has_value());
  config::Environment with_variable = environment;
  with_variable["HASTEN_CONFIG_FILE"] = named.path();
  CHECK(parse_arguments({"p"}, with_variable).options.num_processes == 5);
  CHECK(
      !parse_arguments({"--no_config_file", "p"}, with_variable).options.num_processes.has_value());
  with_variable["HASTEN_CONFIG_FILE"] = "";
  with_variable["HASTEN_NO_CONFIG_FILE"] = "1";
  CHECK(!parse_arguments({"p"}, with_variable).options.num_processes.has_value());
  CHECK(parse_arguments({"--no_config_file", "false", "p"}, with_variable).options.num_processes ==
        4);
}

TEST_CASE("default file: an error in it says how to run without it") {
  const TemporaryDirectory home;
  const config::Environment environment = {{"HASTEN_HOME", home.path().string()}};
  put(home.path() / "default_config.yaml", "distributed_type: FSDP\n");
  const auto caught = test::error_of([&] { parse_arguments({"p"}, environment); });
  CHECK(caught.code == "config.not-supported");
  CHECK(test::contains(caught.text, "default_config.yaml:1"));
  CHECK(test::contains(caught.text, "--no_config_file skips it"));
  CHECK(test::error_of([&] {
          parse_arguments({"--distributed_type", "MULTI_CPU", "p"}, environment);
        }).code == "no error");
}

TEST_CASE("default file: a named file comes first, then HASTEN_CONFIG_FILE") {
  const TemporaryDirectory home;
  const std::string own = (home.path() / "default_config.yaml").string();
  config::Environment environment = {{"HASTEN_HOME", home.path().string()}};
  CHECK(config::file_to_read("", environment) == "");
  CHECK(config::file_to_write("", environment) == own);
  put(own, "debug: true\n");
  CHECK(config::file_to_read("", environment) == own);
  environment["HASTEN_CONFIG_FILE"] = "a.yaml,b.yaml";
  CHECK(config::file_to_read("", environment) == "a.yaml");
  CHECK(config::file_to_write("", environment) == "a.yaml");
  CHECK(config::file_to_read("c.yaml", environment) == "c.yaml");
}

}  // namespace machine_default_file_test
