#include "hasten/options/detail/kwargs.h"

#include "unit/options/support.h"

namespace options_kwargs_test {

using namespace hasten;
using namespace hasten::test;

TEST_CASE("kwargs: pairs, JSON and C++ give the same map") {
  const Kwargs expected = {{"num_cycles", 3}, {"decay_type", "1-sqrt"}, {"nesterov", true}};
  CHECK(parse_kwargs("num_cycles=3, decay_type=1-sqrt ,nesterov=true") == expected);
  CHECK(parse_kwargs(R"({"num_cycles": 3, "decay_type": "1-sqrt", "nesterov": true})") == expected);
  CHECK(parse_kwargs(R"({"num_cycles": "3", "decay_type": "1-sqrt", "nesterov": "true"})") ==
        expected);
}

TEST_CASE("kwargs: an empty text gives no pairs, and null none either") {
  CHECK(parse_kwargs("") == Kwargs{});
  CHECK(parse_kwargs(" {} ") == Kwargs{});
  CHECK(parse_kwargs(R"({"a": null, "b": 1})") == Kwargs{{"b", 1}});
}

TEST_CASE("kwargs: a text that is neither pairs nor a flat object is refused") {
  for (const char* text :
       {"power", "=2", "power=", "power=1,power=2", "{\"a\":", "{\"a\": {\"b\": 1}}",
        "{\"a\": [1]}", "[1]", "power=1,,", "{} x", "{\"a\": 1, \"a\": 2}"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_kwargs(text).has_value());
  }
}

TEST_CASE("kwargs: a missing name gives the fallback, and a value of another type throws") {
  const Kwargs kwargs = {{"power", 2.5}, {"shape", "linear"}};
  CHECK(kwargs.number("power", 1) == 2.5);
  CHECK(kwargs.number("lr_end", 1e-7) == 1e-7);
  CHECK(kwargs.text("shape", "cosine") == "linear");
  CHECK(kwargs.text("power", "") == "2.5");
  CHECK_FALSE(kwargs.flag("nesterov", false));
  CHECK(error_of([&] { kwargs.number("shape", 0); }).text ==
        "shape: got 'linear', expected a number");
  CHECK(error_of([&] { kwargs.flag("shape", false); }).code == "config.bad-value");
}

TEST_CASE("kwargs: the text reads back to the same map") {
  const Kwargs kwargs = {{"min_lr_rate", 0.1}, {"lr_end", 1e-7}, {"decay_type", "linear"}};
  CHECK(to_text(kwargs) == "decay_type=linear,lr_end=1e-07,min_lr_rate=0.1");
  CHECK(parse_kwargs(to_text(kwargs)) == kwargs);
}

}  // namespace options_kwargs_test
