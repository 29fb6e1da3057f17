// Arrow and Parquet data give the rows that the datasets library reads from them. Damaged files
// cause errors that name the file. generate_arrow.py wrote the data.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "data/arrow_table.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/data/arrow_dataset.h"
#include "hasten/data/collator.h"
#include "hasten/data/loader.h"
#include "hasten/data/row_lengths.h"
#include "hasten/data/tagged_words.h"
#include "hasten/data/text_reader.h"
#include "processor_time.h"
#include "skip.h"
#include "slowdown.h"
#include "unit/data/error_of.h"

namespace oracle_arrow_test {

using namespace hasten;
namespace fs = std::filesystem;
using nlohmann::json;
using Names = std::vector<std::string>;

namespace {

const fs::path kFolder = fs::path(HASTEN_TEST_DATA) / "oracle/data/arrow";

// Returns whether hasten can read Arrow files. It cannot without the pyarrow wheel, and then the
// error says how to get the wheel.
bool can_read() {
  try {
    (void)load_arrow_dataset(kFolder / "big.arrow", {.columns = {"x"}});
    return true;
  } catch (const ConfigError& error) {
    CHECK(contains(error.what(), "tools/fetch_pyarrow.sh"));
    skip_test("hasten was built without the pyarrow wheel (tools/fetch_pyarrow.sh)");
    return false;
  }
}

json list_of(const at::Tensor& tensor) {
  if (tensor.dim() == 0) {
    if (tensor.scalar_type() == at::kBool) return tensor.item<bool>();
    if (tensor.is_floating_point()) return tensor.item<double>();
    return tensor.item<std::int64_t>();
  }
  json list = json::array();
  for (std::int64_t i = 0; i < tensor.size(0); ++i) list.push_back(list_of(tensor[i]));
  return list;
}

json rows_of_dataset(const ArrowDataset& dataset) {
  json rows = json::array();
  for (std::int64_t i = 0; i < dataset.size(); ++i) {
    json row;
    for (const auto& [name, tensor] : dataset.get(i)) row[name] = list_of(tensor);
    rows.push_back(row);
  }
  return rows;
}

std::string error_for(const std::string& name, const ArrowOptions& options = {}) {
  return error_of([&] { (void)rows_of_dataset(load_arrow_dataset(kFolder / name, options)); });
}

// Reads every row of a file in every way. Returns the error, if any.
std::string read_all(const fs::path& file) {
  return error_of([&] {
    const ArrowDataset dataset = load_arrow_dataset(file);
    for (std::int64_t i = 0; i < dataset.size(); ++i) (void)dataset.get(i);
    (void)read_text_table(file, {.structured = true});
  });
}

}  // namespace

TEST_CASE("arrow: the rows of folders and Parquet files are those of the datasets library") {
  if (!can_read()) return;
  const json expected = json::parse(read_file(kFolder / "expected.json"));
  const ArrowDataset train = load_arrow_dataset(kFolder / "splits/train");
  CHECK(train.size() == 7);
  CHECK(rows_of_dataset(train) == expected.at("train"));
  CHECK(rows_of_dataset(load_arrow_dataset(kFolder / "splits", {.split = "test"})) ==
        expected.at("test"));
  CHECK(rows_of_dataset(load_arrow_dataset(kFolder / "rows.parquet")) == expected.at("train"));
  CHECK(train.class_names("label") == Names{"zebra", "ant", "cat"});
  CHECK(train.class_names("tags") == Names{"O", "B"});
  CHECK(train.class_names("ok").empty());
  CHECK(load_arrow_dataset(kFolder / "rows.parquet").class_names("label") ==
        Names{"zebra", "ant", "cat"});
  CHECK((train.get(0).at("input_ids").scalar_type() == at::kLong));
  CHECK((train.get(0).at("score").scalar_type() == at::kFloat));
  CHECK(contains(error_of([&] { (void)train.get(7); }), "data.row"));
}

TEST_CASE("arrow: a loader pads and shuffles the rows, with workers") {
  if (!can_read()) return;
  const ArrowDataset rows =
      load_arrow_dataset(kFolder / "splits/train", {.columns = {"input_ids", "label"}});
  CHECK(rows.columns() == Names{"input_ids", "label"});
  auto loader = make_loader(rows, {.batch_size = 4, .shuffle = true, .num_workers = 2},
                            DataCollatorWithPadding{.pad_token_id = 99});
  std::int64_t tokens = 0, labels = 0;
  for (const TensorDict& batch : loader) {
    tokens += batch.at("attention_mask").sum().item<std::int64_t>();
    labels += batch.at("labels").sum().item<std::int64_t>();
  }
  CHECK(tokens == 28);
  CHECK(labels == 6);
  CHECK(row_lengths(rows, "length") == std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7});
}

TEST_CASE("arrow: the indices of a dictionary have its texts as class names") {
  if (!can_read()) return;
  for (const char* name : {"dictionary.arrow", "dictionary.parquet"}) {
    const ArrowDataset rows = load_arrow_dataset(kFolder / name);
    CHECK(rows.columns() == Names{"animal", "long"});
    CHECK(rows.class_names("animal") == Names{"ant", "bee", "cat"});
    CHECK(list_of(rows.get(3).at("animal")) == 2);
    CHECK(list_of(rows.get(1).at("long")) == json({2, 3}));
    const TextTable table = read_text_table(kFolder / name);
    CHECK(table.column("animal") == Names{"ant", "bee", "ant", "cat", "bee"});
    CHECK(table.column("name") == Names{"a", "b", "c", "d", "e"});
    CHECK(table.names() == Names{"animal", "name"});
  }
}

TEST_CASE("arrow: texts and classes become a table") {
  if (!can_read()) return;
  const TextTable table = read_text_table(kFolder / "splits/train", {.structured = true});
  CHECK(table.column("text")[2] == "grünish \U0001f98a");
  CHECK(table.column("label") == Names{"zebra", "ant", "cat", "zebra", "ant", "cat", "zebra"});
  CHECK(table.column("input_ids")[2] == "[0, 1, 2]");
  CHECK(table.column("tags")[2] == "[\"O\", \"B\"]");
  CHECK(table.column("ok")[1] == "false");
  CHECK(table.column("pairs")[2] == "[[2, 0], [2, 1]]");
  // The classes keep their numbers, which differ from the order of the sorted names.
  CHECK(table.classes("label").ids == std::vector<std::int64_t>{0, 1, 2, 0, 1, 2, 0});
  CHECK(read_text_table(kFolder / "unlabelled.parquet").column("label") ==
        Names{"ant", "zebra", "", "ant"});
  CHECK(contains(error_of([] { (void)read_text_table(kFolder / "texts", {.columns = {"txt"}}); }),
                 "text.missing-column"));
  const TaggedWords words = read_tagged_words(kFolder / "words.parquet");
  CHECK(words.rows() == 2);
  CHECK(words.words(0)[1] == "green");
  CHECK(words.tags().column("tags") == Names{"B", "O", "O"});
  CHECK(words.tags().class_names("tags") == Names{"O", "B"});
}

TEST_CASE("arrow: a null and a NaN become an empty text, as a null of JSON lines") {
  if (!can_read()) return;
  const TextTable table = read_text_table(kFolder / "missing.parquet", {.structured = true});
  CHECK(table.column("text") == Names{"red", "", "blue"});
  CHECK(table.column("note") == Names{"", "x", ""});
  CHECK(table.column("score") == Names{"0.5", "", ""});
  CHECK(table.column("odd") == Names{"inf", "1.0", "2.0"});
  CHECK(table.column("lists") == Names{"[\"a\"]", "", "[\"b\", \"c\"]"});
  // A tensor cannot hold nulls.
  CHECK(contains(error_for("missing.parquet", {.columns = {"score"}}),
                 "missing.parquet, row 2, column \"score\": got a null"));
}

TEST_CASE("arrow: the text of a number has its digits in the file") {
  if (!can_read()) return;
  const TextTable table = read_text_table(kFolder / "precise.parquet");
  CHECK(table.column("score") == Names{"0.1", "20240131.0", "1e+300"});
  CHECK(table.column("small") == Names{"0.1", "0.25", "3.0"});
}

TEST_CASE("arrow: a row with billions of empty lists is refused before its text is made") {
  if (!can_read()) return;
  CHECK(contains(error_of([] {
                   (void)read_text_table(kFolder / "lists.arrow",
                                         {.columns = {"x"}, .structured = true});
                 }),
                 "lists.arrow, row 0, column \"x\": got more than 65536 empty lists"));
}

TEST_CASE("arrow: lists with a null are left out of a table, unless they are required") {
  if (!can_read()) return;
  const TextTable table = read_text_table(kFolder / "nulls.arrow", {.structured = true});
  CHECK(table.names() == Names{"label", "whole"});
  CHECK(table.column("label") == Names{"0", "1", "", "1"});
  CHECK(contains(error_of([] {
                   (void)read_text_table(kFolder / "nulls.arrow",
                                         {.columns = {"input_ids"}, .structured = true});
                 }),
                 "nulls.arrow, row 3, column \"input_ids\": got a null"));
}

TEST_CASE("arrow: the error for a value that cannot be a tensor names its file and row") {
  if (!can_read()) return;
  const std::string null = error_for("nulls.arrow");
  CHECK(contains(null, "data.arrow-column | "));
  CHECK(contains(null, "nulls.arrow, row 3, column \"input_ids\": got a null"));
  CHECK(contains(error_for("nulls.arrow", {.columns = {"label"}}), "row 2, column \"label\""));
  CHECK(error_for("nulls.arrow", {.columns = {"whole"}}) == "none");
  CHECK(contains(error_for("ragged.arrow"), "ragged.arrow, row 1, column \"x\": got lists of"));
  CHECK(contains(error_for("big.arrow"), "row 1, column \"x\": got an integer above"));
  CHECK(contains(error_for("texts", {.columns = {"text"}}), "got the type string"));
  CHECK(contains(error_for("texts", {.columns = {"lable"}}), "did you mean \"label\"?"));
  CHECK(contains(error_for("splits"), "got the splits train, test"));
  CHECK(contains(error_for("splits", {.split = "dev"}), "data.arrow-folder | "));
  CHECK(contains(error_for("texts", {.split = "dev"}), "one dataset without splits"));
  CHECK(contains(error_for("."), "data.arrow-folder | "));
  CHECK(contains(error_for("no_such.arrow"), "io.open | "));
  CHECK(contains(error_for("rows.arrow"), "data.arrow | "));
  CHECK(contains(error_for("rows.arrow"), "a number of rows that no file has"));
  CHECK(load_arrow_dataset(kFolder / "empty.arrow").size() == 0);
}

TEST_CASE("arrow: a folder names only files in it") {
  if (!can_read()) return;
  const TemporaryDirectory folder;
  const auto refuses = [&](const std::string& state, const std::string& expected) {
    write_file_atomically(folder.path() / "state.json", state);
    const std::string error = error_of([&] { (void)load_arrow_dataset(folder.path()); });
    CHECK_MESSAGE(contains(error, expected), error);
  };
  refuses("", "no JSON object");
  refuses("[]", "no JSON object");
  const std::string nested = std::string(200000, '[') + std::string(200000, ']');
  refuses("{\"_data_files\": " + nested + "}", "no JSON object");
  refuses("{}", "no data files");
  refuses(R"({"_data_files": 3})", "got the data file 3");
  refuses(R"({"_data_files": [{"filename": "../a.arrow"}]})", "../a.arrow");
  refuses(R"({"_data_files": [{"filename": ".."}]})", "..");
  refuses(R"({"_data_files": [{"filename": ["a"]}]})", "the name of a file");
  refuses(R"({"_data_files": [{"filename": "a.arrow"}]})", "io.open");
  refuses(R"({"_data_files": [{"filename": "a"}], "_indices_data_files": [{"filename": "b"}]})",
          "selected by an index");
}

TEST_CASE("arrow: a description of the columns that is nested too deeply is refused") {
  if (!can_read()) return;
  const TemporaryDirectory folder;
  for (const char* name : {"data-00000-of-00001.arrow", "state.json"})
    fs::copy_file(kFolder / "ids" / name, folder.path() / name);
  const std::string nested = std::string(200000, '[') + std::string(200000, ']');
  write_file_atomically(folder.path() / "dataset_info.json", "{\"features\": " + nested + "}");
  const std::string error = error_of([&] { (void)load_arrow_dataset(folder.path()); });
  CHECK_MESSAGE(contains(error, "data.arrow-folder | "), error);
}

TEST_CASE("arrow: the columns that set_format has chosen are those of the rows") {
  if (!can_read()) return;
  const TemporaryDirectory folder;
  for (const char* name : {"data-00000-of-00001.arrow", "dataset_info.json"})
    fs::copy_file(kFolder / "ids" / name, folder.path() / name);
  json state = json::parse(read_file(kFolder / "ids/state.json"));
  state["_format_columns"] = {"label"};
  write_file_atomically(folder.path() / "state.json", state.dump());
  CHECK(load_arrow_dataset(folder.path()).columns() == Names{"label"});
  state["_format_columns"] = 3;
  write_file_atomically(folder.path() / "state.json", state.dump());
  CHECK(
      contains(error_of([&] { (void)load_arrow_dataset(folder.path()); }), "not a list of texts"));
}

// Represents a file of several gigabytes, whose rows are not read when it is opened. ./dev bench
// arrow measures a file of 10 GB.
TEST_CASE("arrow: a file of 2,500 batches opens at once, and its rows are found") {
  if (!can_read()) return;
  const std::string whole = read_file(kFolder / "splits/test/data-00000-of-00001.arrow");
  std::uint32_t schema_bytes = 0;  // a message is a mark, a length, and that number of bytes
  std::memcpy(&schema_bytes, whole.data() + 4, sizeof schema_bytes);
  const std::size_t batch = 8 + schema_bytes, end = whole.size() - 8;
  std::string many = whole.substr(0, batch);
  for (int i = 0; i < 2500; ++i) many += whole.substr(batch, end - batch);
  const TemporaryDirectory folder;
  write_file_atomically(folder.path() / "many.arrow", many + whole.substr(end));
  const double start = processor_seconds();
  const ArrowDataset rows = load_arrow_dataset(folder.path() / "many.arrow");
  const double seconds = processor_seconds() - start;
  CHECK(seconds < 0.5 * kSlowdown);
  CHECK(rows.size() == 7500);
  const json expected = json::parse(read_file(kFolder / "expected.json")).at("test");
  for (const std::int64_t row : {std::int64_t{0}, std::int64_t{4000}, std::int64_t{7499}})
    CHECK(list_of(rows.get(row).at("input_ids")) == expected.at(row % 3).at("input_ids"));
}

TEST_CASE("arrow: a file that ends too early is an error that names it") {
  if (!can_read()) return;
  const TemporaryDirectory folder;
  for (const char* name :
       {"splits/train/data-00000-of-00002.arrow", "dictionary.arrow", "dictionary.parquet"}) {
    const std::string whole = read_file(kFolder / name);
    const fs::path file =
        folder.path() / (ends_with(name, ".parquet") ? "part.parquet" : "part.arrow");
    for (std::size_t size = 0; size < whole.size(); size += 1 + whole.size() / 97) {
      write_file_atomically(file, whole.substr(0, size));
      const std::string error = read_all(file);
      CHECK_MESSAGE(contains(error, "data.arrow | "), name, " cut at ", size, ": ", error);
      CHECK(contains(error, file.filename().string()));
    }
  }
}

TEST_CASE("arrow: a small file that decompresses to a large one is refused") {
  if (!can_read()) return;
  CHECK(max_decoded_bytes(20'000) < 300'000'000);
  const std::string error = error_for("inflating.arrow", {.columns = {"x"}});
  CHECK_MESSAGE(contains(error, "cap exceeded"), error);
  CHECK(contains(error, "inflating.arrow"));
}

// Each changed byte leads to rows or to an error. It must not lead to a different exception, an
// endless loop or a read outside of the file. The fuzz test finds such reads with AddressSanitizer.
TEST_CASE("arrow: damaged files are errors, or other values") {
  if (!can_read()) return;
  const TemporaryDirectory folder;
  for (const char* name : {"splits/test/data-00000-of-00001.arrow", "dictionary.arrow",
                           "dictionary.parquet", "nulls.arrow"}) {
    const std::string whole = read_file(kFolder / name);
    const fs::path file =
        folder.path() / (ends_with(name, ".parquet") ? "bad.parquet" : "bad.arrow");
    std::int64_t errors = 0;
    for (std::size_t at = 0; at < whole.size(); at += 3) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ (at % 2 == 0 ? 0xff : 0x01));
      write_file_atomically(file, damaged);
      errors += read_all(file) != "none";
    }
    CHECK(errors > 0);
  }
}

}  // namespace oracle_arrow_test
