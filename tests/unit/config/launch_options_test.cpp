// The options of hasten launch: what is read from where, and that nothing wrong is let through.
#include "hasten/config/launch_options.h"

#include <doctest/doctest.h>

#include <cctype>

#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"

using namespace hasten;

namespace {

LaunchConfiguration parsed(const std::vector<std::string>& words,
                           const config::Environment& environment = {}) {
  std::vector<const char*> pointers;
  for (const std::string& word : words) pointers.push_back(word.c_str());
  return parse_launch(static_cast<int>(pointers.size()), pointers.data(), environment);
}

// The message of the ConfigError, or empty where none came.
std::string refusal(const std::vector<std::string>& words,
                    const config::Environment& environment = {}) {
  try {
    parsed(words, environment);
  } catch (const ConfigError& error) {
    CHECK(error.exit_code() == 2);
    return error.what();
  }
  return "";
}

// Values that no option of the kind takes.
std::vector<std::string> wrong_values(const config::Option& option) {
  switch (option.kind) {
    case config::Kind::boolean:
      return {"maybe", "2", "yes please"};
    case config::Kind::integer:
      return {"x", "1.5", "99999999999999999999", "-7", "1e3x", "0x10"};
    case config::Kind::number:
      return {"x", "1,5", "-1", "--"};
    case config::Kind::choice:
      return {"zzz", "no no", "0"};
    default:
      return {};
  }
}

std::string upper(std::string word) {
  for (char& letter : word) letter = static_cast<char>(std::toupper(letter));
  return word;
}

std::string changed(const std::string& name) { return name.substr(0, name.size() - 1) + "zq"; }

}  // namespace

TEST_CASE("launch options: the program begins at the first word that is no option's") {
  const auto run = parsed({"-n", "4", "--quiet", "--log_dir=logs", "./train", "-n", "7", "--x"});
  CHECK(run.options.num_processes == 4);
  CHECK(run.options.quiet);
  CHECK(run.options.log_dir == "logs");
  CHECK(run.program == std::vector<std::string>{"./train", "-n", "7", "--x"});
  CHECK(parsed({"--quiet", "false", "p"}).program == std::vector<std::string>{"p"});
  CHECK(parsed({"-n", "2", "--", "-odd-name"}).program == std::vector<std::string>{"-odd-name"});
  CHECK(parsed({"--num-processes", "3", "p"}).options.num_processes == 3);
}

TEST_CASE("launch options: a flag wins over the environment, and that over files") {
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "launch.yaml").string();
  write_file_atomically(file, "num_processes: 2\nmax_restarts: 5\nmixed_precision: bf16\n");
  const auto run = parsed({"--config_file", file, "-n", "4", "p"},
                          {{"HASTEN_MAX_RESTARTS", "6"}, {"HASTEN_NUM_PROCESSES", "3"}});
  CHECK(run.options.num_processes == 4);
  CHECK(run.options.max_restarts == 6);
  CHECK(run.options.mixed_precision == LaunchPrecision::bf16);
  // A variable may name the file.
  CHECK(parsed({"p"}, {{"HASTEN_CONFIG_FILE", file}}).options.max_restarts == 5);
}

TEST_CASE(
    "launch options: whatever is wrong is refused with its name, in flags, files and variables") {
  const TemporaryDirectory folder;
  const std::string yaml = (folder.path() / "wrong.yaml").string(),
                    json = (folder.path() / "wrong.json").string();
  LaunchOptions options;
  config::OptionTable table;
  describe(table, options);
  int cases = 0;
  const auto check = [&](const std::string& name, const std::string& message,
                         const std::string& how) {
    ++cases;
    CAPTURE(name);
    CAPTURE(how);
    CAPTURE(message);
    CHECK(message.find(name) != std::string::npos);
  };
  for (const config::Option& option : table.options()) {
    const std::string& name = option.name;
    for (const std::string& value : wrong_values(option)) {
      if (option.status != config::Status::supported) continue;
      check(name, refusal({str("--", name, "=", value), "p"}), "flag " + value);
      write_file_atomically(yaml, str("# a file\n", name, ": \"", value, "\"\n"));
      const std::string in_yaml = refusal({"--config_file", yaml, "p"});
      check(name, in_yaml, "YAML " + value);
      check("wrong.yaml:2", in_yaml, "its line");
      write_file_atomically(json, str("{\"", name, "\": \"", value, "\"}"));
      check(name, refusal({"--config_file", json, "p"}), "JSON " + value);
      // HASTEN_DRY_RUN is the anatomy's, and no option here.
      if (name != "dry_run")
        check(upper(name), refusal({"p"}, {{"HASTEN_" + upper(name), value}}), "variable " + value);
    }
    // A name that is almost right is refused.
    check(changed(name), refusal({str("--", changed(name)), "1", "p"}), "misspelt flag");
    write_file_atomically(yaml, str(changed(name), ": 1\n"));
    check(changed(name), refusal({"--config_file", yaml, "p"}), "misspelt key");
    // An option without its value.
    if (option.kind != config::Kind::boolean && option.kind != config::Kind::list)
      CHECK(!refusal({str("--", name)}).empty());
    ++cases;
  }
  MESSAGE("wrong lines: ", cases);
  CHECK(cases >= 300);
}
