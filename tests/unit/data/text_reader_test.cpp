#include "hasten/data/text_reader.h"

#include <doctest/doctest.h>

#include <random>

#include "hasten/base/error.h"
#include "hasten/base/files.h"

namespace data_text_reader_test {

using namespace hasten;

namespace {

using Texts = std::vector<std::string>;

// The table that the text gives as a file with `ending`, or the code and text of the error.
struct Outcome {
  TextTable table{"", {}};
  std::string error;
};

Outcome read(const std::string& ending, const std::string& text, const TextOptions& options = {}) {
  TemporaryDirectory scratch;
  const auto path = scratch.path() / ("x" + ending);
  write_file_atomically(path, text);
  Outcome outcome;
  try {
    outcome.table = read_text_table(path, options);
  } catch (const Error& error) {
    outcome.error = error.code() + " | " + error.what();
  }
  return outcome;
}

bool fails(const std::string& ending, const std::string& text, const std::string& code,
           const std::string& part) {
  const std::string error = read(ending, text).error;
  INFO(error);
  const bool right = error.rfind(code + " |", 0) == 0 && error.find(part) != std::string::npos;
  CHECK(right);
  return right;
}

}  // namespace

TEST_CASE("text: a TSV has named columns; quotes are text; byte order mark and CRLF are ignored") {
  for (const std::string text :
       {"text\tlabel\nHello \"w\"\t1\n\t2\n", "text\tlabel\nHello \"w\"\t1\n\t2",
        "\xEF\xBB\xBFtext\tlabel\r\nHello \"w\"\t1\r\n\t2\r\n\r\n"}) {
    const TextTable table = read(".tsv", text).table;
    CHECK(table.names() == Texts{"text", "label"});
    CHECK(table.rows() == 2);
    CHECK(table.column("text") == Texts{"Hello \"w\"", ""});
    CHECK(table.integers("label") == std::vector<std::int64_t>{1, 2});
    CHECK(table.line(1) == 3);
  }
}

TEST_CASE("text: a CSV has the quotes of RFC 4180, with commas, quotes and line ends inside") {
  const TextTable table =
      read(".csv", "a,\"b \"\"c\"\"\"\r\n\"x, y\",\"line 1\nline 2\"\r\n,\"\"\n\"é\",2\n").table;
  CHECK(table.names() == Texts{"a", "b \"c\""});
  CHECK(table.column("a") == Texts{"x, y", "", "é"});
  CHECK(table.column("b \"c\"") == Texts{"line 1\nline 2", "", "2"});
  CHECK(table.line(1) == 4);
}

TEST_CASE("text: JSON lines have the first line's keys in any order, numbers become text") {
  const TextTable table = read(".jsonl",
                               "{\"text\": \"a\\n\\u00e9\", \"n\": 1, \"x\": 0.5}\n\n{\"x\": "
                               "-2e-7, \"n\": true, \"text\": \"\"}\r\n"
                               "{\"text\": null, \"n\": 12345678901234567890, \"x\": 1}\n")
                              .table;
  CHECK(table.names() == Texts{"text", "n", "x"});
  CHECK(table.column("text") == Texts{"a\né", "", ""});
  CHECK(table.column("n") == Texts{"1", "true", "12345678901234567890"});
  CHECK(table.numbers("x") == std::vector<double>{0.5, -2e-7, 1});
  CHECK(table.line(1) == 3);
}

TEST_CASE("text: a file without names can get them from options, and columns can be required") {
  const TextTable table = read(".csv", "1,2\n3,4\n", {.names = {"a", "b"}}).table;
  CHECK(table.rows() == 2);
  CHECK(table.column("b") == Texts{"2", "4"});
  CHECK(read(".csv", "a,b\n1,2\n", {.columns = {"b"}}).error.empty());
  const std::string error = read(".csv", "text,label\n1,2\n", {.columns = {"txt"}}).error;
  CHECK(error.find("there is no column \"txt\": got [text, label]. Hint: did you mean \"text\"?") !=
        std::string::npos);
  const std::string separator = read(".csv", "text;label\n1;2\n", {.columns = {"label"}}).error;
  CHECK(separator.find("the columns of a .csv file are separated by commas") != std::string::npos);
  CHECK(read(".jsonl", "{\"a\":1}", {.columns = {"b"}}).error.rfind("text.missing-column", 0) == 0);
}

TEST_CASE("text: errors name the file and the line") {
  fails(".tsv", "a\tb\n1\t2\n3\n", "text.fields",
        "x.tsv:3: fields: got 1, expected 2, one for each of a, b");
  fails(".tsv", "a\tb\n1\t2\t3\n", "text.fields", ":2: fields: got 3");
  fails(".csv", "a,b\n1,2\n\n3,4\n", "text.fields",
        ":3: fields: got 1, expected 2, one for each of a, b. Hint: the line is blank");
  fails(".csv", "a,b\n\"1\n\",2\n3\n", "text.fields", ":4: fields");
  fails(".csv", "a,b\n\"1,2\n3,4\n", "text.quotes", ":2: a quote that is never closed");
  fails(".csv", "a,b\n\"1\"x,2\n", "text.quotes", ":2: text after a closing quote: got x");
  fails(".csv", "a,b\n1\"x,2\n", "text.quotes", ":2: a quote inside a field");
  fails(".csv", "a,a\n1,2\n", "text.header", ":1: two columns named \"a\"");
  fails(".csv", "a,\n1,2\n", "text.header", ":1: a column without a name");
  fails(".csv", "a,b\n", "text.empty", "a header line but no rows");
  fails(".tsv", "", "text.empty", ":1: the file is empty");
  fails(".tsv", "\xEF\xBB\xBF\r\n \n", "text.empty", "the file is empty");
  fails(".tsv", std::string("a\tb\n1\t\0\n", 8), "text.nul", ":2: a NUL byte");
  fails(".jsonl", "{\"a\":1}\n{\"a\":1}x\n", "text.json", ":2: invalid JSON at byte 8");
  fails(".jsonl", "{\"a\":1}\n[1]\n", "text.json", ":2: the line: got array, expected an object");
  fails(".jsonl", "{\"a\":1}\n{\"b\":1}\n", "text.fields", ":2: the key \"a\" is missing");
  fails(".jsonl", "{\"a\":1}\n{\"a\":1,\"b\":1}\n", "text.fields",
        ":2: the key \"b\" is not in the earlier lines");
  fails(".jsonl", "{\"a\":[1]}\n", "text.json", ":1: key \"a\": got an array");
  fails(".jsonl", "{\"a\":1,\"a\":2}\n", "text.json", ":1: the key \"a\" twice in one object");
  fails(".jsonl", "{\"a\":\"\\ud800\"}\n", "text.json", ":1: invalid JSON");
  fails(".jsonl", "{}\n", "text.fields", ":1: an object without keys");
  fails(".xml", "<a/>", "text.ending", "expected .tsv, .csv, .jsonl, .json, .arrow or .parquet");
}

TEST_CASE("text: bytes that are not UTF-8 are refused with their line") {
  for (const char* bytes :
       {"\xff", "\xc3", "\xc0\xaf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80",
        "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xe2\x82", "\x80", "\xc3(", "\xf0\x9f\x98"}) {
    CAPTURE(bytes);
    fails(".tsv", std::string("a\nok\n") + bytes + "\n", "text.utf8",
          ":3: bytes that are not UTF-8");
  }
  CHECK(read(".tsv",
             "a\n\xc2\x80 \xdf\xbf \xe0\xa0\x80 \xef\xbf\xbf \xf0\x90\x80\x80 \xf4\x8f\xbf\xbf\n")
            .error.empty());
}

TEST_CASE("text: numbers and names are converted, and an error names the line") {
  const TextTable table =
      read(".tsv", "n\tx\tc\n-3\t1e3\tpear\n+4\t-.5\tapple\n5\t7\tpear\n").table;
  CHECK(table.integers("n") == std::vector<std::int64_t>{-3, 4, 5});
  CHECK(table.numbers("x") == std::vector<double>{1000, -0.5, 7});
  const ClassColumn classes = table.classes("c");
  CHECK(classes.names == Texts{"apple", "pear"});
  CHECK(classes.ids == std::vector<std::int64_t>{1, 0, 1});
  CHECK(table.classes("c", {"pear", "plum", "apple"}).ids == std::vector<std::int64_t>{0, 2, 0});
  CHECK_THROWS_WITH_AS(
      table.classes("c", {"pear", "appel"}),
      doctest::Contains(
          ":3: column \"c\": got \"apple\", expected one of the 2 known names. Hint: did you "
          "mean \"appel\"?"),
      DataError);
  CHECK_THROWS_WITH_AS(table.integers("x"),
                       doctest::Contains(":2: column \"x\": got \"1e3\", expected a whole number"),
                       DataError);
  CHECK_THROWS_WITH_AS(table.numbers("c"),
                       doctest::Contains(":2: column \"c\": got \"pear\", expected a number"),
                       DataError);
  CHECK_THROWS_AS(read(".tsv", "n\nnan\n").table.numbers("n"), DataError);
  CHECK_THROWS_WITH_AS(table.numbers("c", "it is a regression"),
                       doctest::Contains("Hint: it is a regression"), DataError);
  for (const char* bad : {"", " 1", "1 ", "0x10", "+-1", "99999999999999999999", "1.0", "+"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(read(".tsv", std::string("n\tm\n") + bad + "\t1\n").table.integers("n"),
                    DataError);
  }
}

TEST_CASE("text: class names that are numbers are sorted by value, and -100 is not a class") {
  const auto classes = [](const std::string& lines) {
    return read(".tsv", "c\tn\n" + lines).table.classes("c");
  };
  CHECK(classes("10\t1\n2\t1\n-1\t1\n 2 \t1\n-100\t1\n").names == Texts{"-1", "2", "10"});
  CHECK(classes("10\t1\n2\t1\n-1\t1\n 2 \t1\n-100\t1\n").ids ==
        std::vector<std::int64_t>{2, 1, 0, 1, -100});
  CHECK(classes("1e1\t1\n2.5\t1\n").names == Texts{"2.5", "1e1"});
  CHECK(classes("1\t1\n01\t1\n0\t1\n").names == Texts{"0", "01", "1"});
  CHECK(classes("10\t1\n2\t1\nx\t1\n").names == Texts{"10", "2", "x"});
  CHECK_THROWS_WITH_AS(
      classes("x\t1\n \t1\n"),
      doctest::Contains(":3: column \"c\": got \" \", expected the name of a class"), DataError);
  CHECK((kind_of({"1", "-2"}) == TextKind::whole_numbers));
  CHECK((kind_of({"1", "2.5"}) == TextKind::numbers));
  CHECK((kind_of({"1", "inf"}) == TextKind::names));
}

TEST_CASE("text: names that two classes share do not move the later numbers") {
  const TextTable table = read(".tsv", "c\tn\nb\t1\na\t1\n").table;
  CHECK(table.classes("c", {"a", "a", "b"}).ids == std::vector<std::int64_t>{2, 0});
}

TEST_CASE("text: JSON that is nested very deeply is refused with its line") {
  const std::string nested = std::string(200000, '[') + std::string(200000, ']');
  const std::string error =
      read(".jsonl", "{\"a\": 1}\n{\"a\": " + nested + "}\n", {.structured = true}).error;
  CHECK_MESSAGE(error.find("x.jsonl:2: a list or an object inside of more than 1000 others") !=
                    std::string::npos,
                error);
}

TEST_CASE("text: 3,000 random texts give a table or an error of hasten") {
  std::mt19937_64 random(7);
  const Texts words = {"a", ",", "\t", "\n", "\r\n", "\"",   "{",         "}",
                       ":", "1", "\\", "é",  "[",    "\xff", "{\"a\":1}", "{\"a\":\"x\"}\n"};
  int tables = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (std::size_t n = random() % 20; n > 0; --n) text += words[random() % words.size()];
    const Outcome outcome = read(round % 3 == 0   ? ".tsv"
                                 : round % 3 == 1 ? ".csv"
                                                  : ".jsonl",
                                 text);
    tables += outcome.error.empty();
  }
  CHECK(tables > 30);
}

}  // namespace data_text_reader_test
