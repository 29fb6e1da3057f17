#include "hasten/data/tagged_words.h"

#include <doctest/doctest.h>

#include "hasten/base/files.h"
#include "unit/data/error_of.h"

namespace data_tagged_words_test {

using namespace hasten;

namespace {

using Texts = std::vector<std::string>;

TaggedWords read(const std::string& text, const TaggedWordsOptions& options = {}) {
  const TemporaryDirectory scratch;
  write_file_atomically(scratch.path() / "x.jsonl", text);
  return read_tagged_words(scratch.path() / "x.jsonl", options);
}

Texts words_of(const TaggedWords& rows, std::int64_t row) {
  const auto words = rows.words(row);
  return {words.begin(), words.end()};
}

}  // namespace

TEST_CASE("tagged words: rows have words, tags, and the lines of the file") {
  const TaggedWords rows = read(
      "{\"id\": 1, \"tokens\": [\"Anna\", \"sings\"], \"tags\": [\"B-PER\", \"O\"]}\n\n"
      "{\"tags\": [\"O\"], \"tokens\": [\"\\u00fc \\\"x\\\"\"]}\n");
  REQUIRE(rows.rows() == 2);
  CHECK(words_of(rows, 0) == Texts{"Anna", "sings"});
  CHECK(words_of(rows, 1) == Texts{"\u00fc \"x\""});
  CHECK(rows.first_word(0) == 0);
  CHECK(rows.first_word(1) == 2);
  CHECK(rows.has_tags());
  CHECK(rows.tags().column("tags") == Texts{"B-PER", "O", "O"});
  CHECK(rows.tags().line(1) == 1);
  CHECK(rows.tags().line(2) == 3);
  CHECK(rows.tags().class_names("tags") == Texts{"B-PER", "O"});
}

TEST_CASE("tagged words: tags may be numbers, in columns of other names, or absent") {
  const TaggedWordsOptions names{.words_column = "words", .tags_column = "ner_tags"};
  const TaggedWords rows = read("{\"words\": [\"a\", \"b\"], \"ner_tags\": [3, -100]}", names);
  CHECK(rows.tags().column("ner_tags") == Texts{"3", "-100"});

  const TaggedWordsOptions optional{.tags_required = false};
  CHECK_FALSE(read("{\"tokens\": [\"a\"]}\n{\"tokens\": [\"b\"]}\n", optional).has_tags());
  CHECK(read("{\"tokens\": [\"a\"], \"tags\": [\"O\"]}", optional).has_tags());
}

TEST_CASE("tagged words: a malformed row is named by file and line") {
  struct Case {
    std::string text, code, part;
  };
  const std::string good = "{\"tokens\": [\"a\"], \"tags\": [\"O\"]}\n";
  for (const Case& each : {
           Case{"", "text.empty", "the file is empty"},
           Case{"{\"token\": [\"a\"], \"tags\": [\"O\"]}", "text.missing-column",
                "did you mean \"token\"?"},
           Case{"{\"tokens\": [\"a\"], \"ner_tags\": [\"O\"]}", "text.missing-column", "\"tags\""},
           Case{good + "{\"tokens\": [\"a\"]}", "text.fields",
                ":2: the key \"tags\": got none, expected a list"},
           Case{good + "{\"tokens\": \"a\", \"tags\": [\"O\"]}", "text.json",
                ":2: key \"tokens\": got string, expected a list"},
           Case{good + "\n{\"tokens\": [\"a\", 7], \"tags\": [\"O\", \"O\"]}", "text.json",
                ":3: key \"tokens\", entry 1: got 7, expected a text"},
           Case{good + "{\"tokens\": [\"a\"], \"tags\": [null]}", "text.json",
                ":2: key \"tags\", entry 0: got null, expected a text or a whole number"},
           Case{good + "{\"tokens\": [\"a\"], \"tags\": [1.5]}", "text.json", "entry 0: got 1.5"},
           Case{good + "{\"tokens\": [\"a\", \"b\"], \"tags\": [\"O\"]}", "text.fields",
                ":2: key \"tags\": got 1 tags, expected 2, one for each word of \"tokens\""},
           Case{good + "{\"tokens\": [], \"tags\": []}", "text.fields",
                ":2: key \"tokens\": got an empty list"},
           Case{good + "{\"tokens\": [\"a\"", "text.json", ":2: invalid JSON"},
           Case{good + "[1]", "text.json", ":2: the line: got array, expected an object"},
           Case{good + "{\"tokens\": [\"a\"], \"tokens\": [\"b\"], \"tags\": [\"O\"]}", "text.json",
                ":2: the key \"tokens\" twice in one object"},
       }) {
    CAPTURE(each.text);
    const std::string error = error_of([&] { read(each.text); });
    INFO(error);
    CHECK(error.rfind(each.code + " |", 0) == 0);
    CHECK(contains(error, each.part));
  }
  const std::string late =
      error_of([&] { read("{\"tokens\": [\"a\"]}\n" + good, {.tags_required = false}); });
  CHECK(contains(late, ":2: the key \"tags\" is not in the earlier lines"));
}

TEST_CASE("text: the lines of a plain text are rows, without blank ones") {
  const TemporaryDirectory scratch;
  write_file_atomically(scratch.path() / "x.txt", "\xEF\xBB\xBFone\ttwo\r\n\n  \n\"three\"\n");
  const TextTable table = read_text_lines(scratch.path() / "x.txt");
  CHECK(table.column("text") == Texts{"one\ttwo", "\"three\""});
  CHECK(table.line(1) == 4);
}

}  // namespace data_tagged_words_test
