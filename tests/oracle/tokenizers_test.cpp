// Compares Tokenizer with Hugging Face's tokenizers 0.23.3 (generate_tokenizers.py). Compares ids,
// offsets and decoded texts of 100,000 hostile and 100,000 ordinary texts for a tokenizer of each
// kind, and of a few thousand texts for variants of these tokenizers. Also compares words, lists of
// words, and pairs that are cut.
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/crc32.h"
#include "base/utf8.h"
#include "hasten/base/error.h"
#include "hasten/tokenizers/tokenizer.h"

namespace oracle_tokenizers_test {

namespace {

using namespace hasten;
using nlohmann::json;
namespace fs = std::filesystem;

const fs::path data = fs::path(HASTEN_TEST_DATA) / "oracle/data/tokenizers";

std::string read(const fs::path& path) {
  std::ifstream stream(path);
  REQUIRE_MESSAGE(stream, "cannot read " << path);
  return {std::istreambuf_iterator<char>(stream), {}};
}

const json& cases() {
  static const json all = json::parse(read(data / "cases.json"));
  return all;
}

// splitmix64, as in generate_tokenizers.py.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t below(std::uint64_t limit) {
    state_ += 0x9E3779B97F4A7C15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return ((z ^ (z >> 31)) >> 32) % limit;
  }
  void add_character(std::uint64_t low, std::uint64_t high, std::string& out) {
    const std::uint64_t value = low + below(high - low);
    append_utf8(value >= 0xD800 && value < 0xE000 ? 0xFFFD : static_cast<char32_t>(value), out);
  }
  void add_characters(std::uint64_t most, std::uint64_t low, std::uint64_t high, std::string& out) {
    for (std::uint64_t count = below(most) + 1; count > 0; --count) add_character(low, high, out);
  }
  void add_one_of(const json& texts, std::string& out) {
    out += texts[below(texts.size())].get_ref<const std::string&>();
  }

 private:
  std::uint64_t state_;
};

void add_repeated(Random& random, std::string& out) {
  std::string character;
  random.add_character(0x21, 0x180, character);
  for (std::uint64_t count = random.below(40) + 1; count > 0; --count) out += character;
}

std::string hostile_text(Random& random) {
  std::string out;
  for (std::uint64_t pieces = random.below(10) + 1; pieces > 0; --pieces) {
    switch (random.below(12)) {
      case 0:
        random.add_characters(6, 0x20, 0x7F, out);
        break;
      case 1:
        random.add_one_of(cases()["spaces"], out);
        break;
      case 2:
        random.add_character(0x80, 0x800, out);
        break;
      case 3:
        random.add_character(0x800, 0x10000, out);
        break;
      case 4:
        random.add_character(0x10000, 0x110000, out);
        break;
      case 5:
        random.add_characters(3, 0x300, 0x370, out);
        break;
      case 6:
        random.add_characters(6, 0x30, 0x3A, out);
        break;
      case 7:
        add_repeated(random, out);
        break;
      case 8:
        random.add_characters(4, 0x3040, 0x3100, out);
        random.add_character(0x4E00, 0xA000, out);
        break;
      case 9:
        random.add_character(0, 0x20, out);
        break;
      default:
        random.add_one_of(cases()["snippets"], out);
    }
  }
  return out;
}

const std::vector<std::string>& words() {
  static const std::vector<std::string> all = [] {
    std::istringstream stream(
        read(fs::path(HASTEN_SOURCE) / "examples/data/debian_sections/train.tsv"));
    std::vector<std::string> found;
    for (std::string line; std::getline(stream, line);) {
      std::string word;
      for (const char c : line + "\n") {
        if (c != ' ' && c != '\t' && c != '\n') {
          word += c;
          continue;
        }
        if (!word.empty()) found.push_back(word);
        word.clear();
      }
    }
    return found;
  }();
  return all;
}

std::string ordinary_text(Random& random) {
  const std::uint64_t count = random.below(40) + 1, begin = random.below(words().size() - count);
  std::string out = words()[begin];
  for (std::uint64_t i = 1; i < count; ++i) out += " " + words()[begin + i];
  return out;
}

Tokenizer variant(const json& description) {
  json whole = json::parse(read(data / (description["base"].get<std::string>() + ".json")));
  for (const auto& [key, value] : description["change"].items()) {
    if (key == "model")
      whole[key].update(value);
    else
      whole[key] = value;
  }
  const fs::path path =
      fs::temp_directory_path() / ("hasten_tokenizers_test_" + std::to_string(getpid()) + ".json");
  std::ofstream(path) << whole.dump();
  Tokenizer tokenizer = Tokenizer::from_file(path);
  fs::remove(path);
  return tokenizer;
}

void add_number(std::uint32_t value, std::string& out) {
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(value >> shift & 0xFF);
}

std::string result_of(const Tokenizer& tokenizer, const std::string& text) {
  const Encoding row = tokenizer.encode(text, {.offsets = true});
  std::string out;
  add_number(static_cast<std::uint32_t>(row.size()), out);
  for (const std::int32_t id : row.input_ids) add_number(static_cast<std::uint32_t>(id), out);
  for (const auto& [begin, end] : row.offsets) {
    add_number(begin, out);
    add_number(end, out);
  }
  return out + tokenizer.decode(row.input_ids);
}

void check_block(const std::string& name, const Tokenizer& tokenizer, bool is_hostile,
                 std::size_t block, std::uint32_t expected) {
  Random random(block * 2 + (is_hostile ? 1 : 0));
  std::string results;
  for (int i = 0; i < cases()["block"].get<int>(); ++i)
    results += result_of(tokenizer, is_hostile ? hostile_text(random) : ordinary_text(random));
  CHECK_MESSAGE(crc32(results) == expected, name << ": block " << block << " of the "
                                                 << std::string(is_hostile ? "hostile" : "ordinary")
                                                 << " texts");
}

const json& word_cases() {
  static const json all = json::parse(read(data / "words.json"));
  return all;
}

std::vector<std::string> word_list(std::uint64_t number) {
  Random random(word_cases()["seed"].get<std::uint64_t>() + number);
  std::vector<std::string> list;
  for (std::uint64_t count = random.below(8); count > 0; --count) {
    const bool is_word = random.below(3) == 0;
    list.push_back(is_word ? words()[random.below(words().size())] : hostile_text(random));
  }
  return list;
}

void add_words_of(const Encoding& row, std::string& out) {
  add_number(static_cast<std::uint32_t>(row.size()), out);
  const auto add_all = [&out](const std::vector<std::int32_t>& values) {
    for (const std::int32_t value : values) add_number(static_cast<std::uint32_t>(value), out);
  };
  add_all(row.input_ids);
  add_all(row.word_ids);
  for (const auto& [begin, end] : row.offsets) {
    add_number(begin, out);
    add_number(end, out);
  }
  add_all(row.token_type_ids);
  add_all(row.special_tokens_mask);
}

// Every second list is cut, in turn on the right and on the left.
std::string results_of_lists(const Tokenizer& tokenizer) {
  std::string results;
  for (std::uint64_t i = 0; i < word_cases()["count"].get<std::uint64_t>(); ++i) {
    EncodeOptions options;
    if (i % 2 == 1) {
      options.truncation = Truncation::longest_first;
      options.max_length = word_cases()["cut"].get<std::int64_t>();
      options.truncation_side = i % 4 == 1 ? Side::right : Side::left;
    }
    add_words_of(tokenizer.encode_words(word_list(i), options), results);
  }
  return results;
}

std::string results_of_texts(const Tokenizer& tokenizer) {
  Random random(1);
  std::string results;
  for (std::uint64_t i = 0; i < word_cases()["count"].get<std::uint64_t>(); ++i) {
    const Encoding row = tokenizer.encode(hostile_text(random), {.offsets = true});
    add_words_of(row, results);
    results += tokenizer.decode(row.input_ids, {.skip_special_tokens = true});
  }
  return results;
}

// Each pair is cut in one of three ways on one of two sides.
std::string results_of_pairs(const Tokenizer& tokenizer) {
  const Truncation ways[] = {Truncation::longest_first, Truncation::only_first,
                             Truncation::only_second};
  Random random(1);
  std::string results;
  for (std::uint64_t i = 0; i < word_cases()["count"].get<std::uint64_t>(); ++i) {
    const std::string first = hostile_text(random), second = hostile_text(random);
    const EncodeOptions options{
        .truncation = ways[i % 3],
        .max_length = word_cases()["cut"].get<std::int64_t>() + static_cast<std::int64_t>(i % 11),
        .truncation_side = i % 2 == 0 ? Side::right : Side::left,
        .offsets = true};
    try {
      add_words_of(tokenizer.encode(first, second, options), results);
    } catch (const DataError& error) {
      CHECK(error.code() == "tokenizers.cannot-truncate");
      results += "error";
    }
  }
  return results;
}

// Checks every `step`-th block.
void check_blocks(std::size_t step) {
  for (const auto& [name, description] : cases()["variants"].items()) {
    const Tokenizer tokenizer = variant(description);
    for (const bool is_hostile : {true, false}) {
      const json& checksums = description["checksums"][is_hostile ? "hostile" : "ordinary"];
      for (std::size_t block = 0; block < checksums.size(); block += step)
        check_block(name, tokenizer, is_hostile, block, checksums[block].get<std::uint32_t>());
    }
  }
}

}  // namespace

TEST_CASE(
    "tokenizers: the texts of the first block have the recorded ids, offsets and decoded text") {
  for (const auto& [name, description] : cases()["variants"].items()) {
    const Tokenizer tokenizer = variant(description);
    Random random(1);
    for (const json& row : description["cases"]) {
      const std::string text = hostile_text(random);
      CAPTURE(name);
      CAPTURE(text);
      REQUIRE(text == row["text"].get<std::string>());
      const Encoding result = tokenizer.encode(text, {.offsets = true});
      CHECK(result.input_ids == row["ids"].get<std::vector<std::int32_t>>());
      CHECK(json(result.offsets) == row["offsets"]);
      CHECK(tokenizer.decode(result.input_ids) == row["decoded"].get<std::string>());
      // Without offsets, the ids are the same.
      CHECK(tokenizer.encode(text).input_ids == result.input_ids);
    }
  }
}

TEST_CASE("tokenizers: ids, offsets and decoded texts of some blocks equal Hugging Face's") {
  check_blocks(10);
}

TEST_CASE("tokenizers: words, and pairs that are cut, equal Hugging Face's") {
  for (const auto& [name, description] : cases()["variants"].items()) {
    CAPTURE(name);
    const Tokenizer tokenizer = variant(description);
    const json& expected = word_cases()["variants"][name];
    const std::vector<std::string> list = word_list(4);
    REQUIRE(list == expected["case"]["words"].get<std::vector<std::string>>());
    const Encoding row = tokenizer.encode_words(list);
    CHECK(row.input_ids == expected["case"]["ids"].get<std::vector<std::int32_t>>());
    CHECK(row.word_ids == expected["case"]["word_ids"].get<std::vector<std::int32_t>>());
    CHECK(crc32(results_of_lists(tokenizer)) == expected["lists"].get<std::uint32_t>());
    CHECK(crc32(results_of_texts(tokenizer)) == expected["texts"].get<std::uint32_t>());
    CHECK(crc32(results_of_pairs(tokenizer)) == expected["pairs"].get<std::uint32_t>());
  }
}

// The test oracle/tokenizers_all runs this case (tests/CMakeLists.txt).
TEST_CASE("tokenizers: ids, offsets and decoded texts of all blocks equal Hugging Face's" *
          doctest::skip()) {
  check_blocks(1);
}

}  // namespace oracle_tokenizers_test
