#include "options/describe.h"

#include <set>

#include "unit/options/support.h"

namespace options_describe_test {

enum class Colour { red, green };

}  // namespace options_describe_test

template <>
struct hasten::Names<options_describe_test::Colour> {
  static constexpr std::string_view text[] = {"red", "green"};
};

namespace options_describe_test {

using namespace hasten;
using namespace hasten::test;
using config::Value;

namespace {

struct Sample {
  bool flag = false;
  std::int64_t count = 3;
  double rate = 0.5;
  std::string name = "x";
  Colour colour = Colour::red;
  std::vector<std::string> words;
  Kwargs kwargs;
  std::optional<std::int64_t> limit;
  std::optional<bool> maybe;
};

void describe(config::OptionTable& table, Sample& sample) {
  config::Describer d(table, sample);
  d.group("All");
  d("flag", &Sample::flag, "");
  d("count", &Sample::count, "").at_least(1);
  d("rate", &Sample::rate, "").above(0).below(1).former_name("old_rate");
  d("name", &Sample::name, "");
  d("colour", &Sample::colour, "").unimplemented_choices({"blue"});
  d("words", &Sample::words, "");
  d("kwargs", &Sample::kwargs, "");
  d("limit", &Sample::limit, "").at_least(1);
  d("maybe", &Sample::maybe, "");
  d.unimplemented<bool>("warp", "later");
}

struct DescribedSample {
  DescribedSample() { describe(table, sample); }
  bool set(const char* name, const char* text) { return table.find(name)->set(std::string(text)); }
  Sample sample;
  config::OptionTable table;
};

}  // namespace

TEST_CASE("describe: a text sets the field by its type") {
  DescribedSample d;
  CHECK(d.set("flag", "Yes"));
  CHECK(d.set("count", "+7"));
  CHECK(d.set("rate", "2.5e-1"));
  CHECK(d.set("name", "null"));
  CHECK(d.set("colour", "green"));
  CHECK(d.set("words", " a, b ,,c"));
  CHECK(d.set("kwargs", "k=1"));
  CHECK(d.set("limit", "5"));
  CHECK(d.set("maybe", "off"));
  CHECK(d.sample.flag);
  CHECK(d.sample.count == 7);
  CHECK(d.sample.rate == 0.25);
  CHECK(d.sample.name == "null");
  CHECK(d.sample.colour == Colour::green);
  CHECK(d.sample.words == Texts{"a", "b", "c"});
  CHECK(d.sample.kwargs == Kwargs{{"k", 1}});
  CHECK(d.sample.limit == 5);
  CHECK(d.sample.maybe == false);
}

TEST_CASE("describe: a text of another type is refused and changes nothing") {
  const std::vector<std::pair<const char*, const char*>> wrong = {{"flag", "maybe"},
                                                                  {"flag", ""},
                                                                  {"count", "1.5"},
                                                                  {"count", "1e3"},
                                                                  {"count", "99999999999999999999"},
                                                                  {"count", ""},
                                                                  {"count", "0x8"},
                                                                  {"rate", "nan"},
                                                                  {"rate", "inf"},
                                                                  {"rate", "1e999"},
                                                                  {"rate", "+-1"},
                                                                  {"rate", "1,5"},
                                                                  {"rate", "a"},
                                                                  {"colour", "Red"},
                                                                  {"colour", "blue"},
                                                                  {"kwargs", "k"},
                                                                  {"limit", "x"},
                                                                  {"maybe", "x"}};
  for (const auto& [name, text] : wrong) {
    CAPTURE(name);
    CAPTURE(text);
    DescribedSample d;
    CHECK_FALSE(d.set(name, text));
    CHECK(d.table.find(name)->is_default());
  }
}

TEST_CASE("describe: none unsets an optional field") {
  DescribedSample d;
  d.sample.limit = 5;
  d.sample.maybe = true;
  CHECK(d.set("limit", "None"));
  CHECK(d.table.find("maybe")->set(Value{}));
  CHECK_FALSE(d.sample.limit.has_value());
  CHECK_FALSE(d.sample.maybe.has_value());
  CHECK_FALSE(d.set("count", "none"));
}

TEST_CASE("describe: limits include or exclude their bound as described") {
  DescribedSample d;
  config::Option& rate = *d.table.find("rate");
  for (const auto& [value, inside] :
       {std::pair{0.0, false}, {1e-9, true}, {0.999, true}, {1.0, false}}) {
    d.sample.rate = value;
    CHECK(rate.is_in_limits() == inside);
  }
  d.sample.count = 1;
  CHECK(d.table.find("count")->is_in_limits());
  d.sample.count = 0;
  CHECK_FALSE(d.table.find("count")->is_in_limits());
  d.sample.rate = std::numeric_limits<double>::quiet_NaN();
  CHECK_FALSE(rate.is_in_limits());
}

TEST_CASE("describe: the expectation names the type, the range and the choices") {
  DescribedSample d;
  CHECK(d.table.find("flag")->expected() == "true or false");
  CHECK(d.table.find("count")->expected() == "a whole number of at least 1");
  CHECK(d.table.find("rate")->expected() == "a number in (0, 1)");
  CHECK(d.table.find("colour")->expected() == "one of red, green");
  CHECK(d.table.find("limit")->expected() == "a whole number of at least 1, or none");
  CHECK(d.table.find("words")->expected() == "names separated by commas");
}

TEST_CASE("describe: an option is found by name, former name, and with '-' for '_'") {
  DescribedSample d;
  CHECK(d.table.find("old-rate") == d.table.find("rate"));
  CHECK(d.table.find("rates") == nullptr);
  CHECK(d.table.find("warp")->status == config::Status::unimplemented);
  CHECK_FALSE(d.table.find("warp")->has_field);
}

TEST_CASE("describe: every option of a run has a unique name, a group and a text") {
  TrainOptions options;
  TrainingArguments arguments;
  config::OptionTable table;
  hasten::describe(table, options);
  hasten::describe(table, arguments);
  std::set<std::string> seen;
  for (const std::string& name : table.names()) {
    CAPTURE(name);
    CHECK(seen.insert(name).second);
    CHECK(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos);
  }
  for (const config::Option& option : table.options()) {
    CAPTURE(option.name);
    CHECK_FALSE(option.group.empty());
    CHECK_FALSE((option.has_field ? option.help : option.reason).empty());
    CHECK(option.is_default());
    CHECK(option.is_in_limits());
    if (option.status != config::Status::supported) CHECK_FALSE(option.reason.empty());
  }
}

TEST_CASE("describe: setting one option changes only that option") {
  TrainOptions options;
  TrainingArguments arguments;
  config::OptionTable table;
  hasten::describe(table, options);
  hasten::describe(table, arguments);
  for (config::Option& option : table.options()) {
    CAPTURE(option.name);
    bool changed = false;
    for (const char* text : {"true", "false", "7", "0.25", "a=1", "b"}) {
      if (!changed && option.set(std::string(text))) changed = !option.is_default();
    }
    if (!changed && !option.choices.empty()) {
      for (const std::string& choice : option.choices)
        changed = option.set(choice) && !option.is_default();
    }
    // The task and the trackers have only one choice.
    if (option.choices.size() != 1) CHECK(changed);
    for (const config::Option& other : table.options())
      CHECK((&other == &option || other.is_default()));
    CHECK(option.set(option.default_value));
    CHECK(option.is_default());
  }
}

}  // namespace options_describe_test
