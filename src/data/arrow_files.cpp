#include "data/arrow_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/did_you_mean.h"
#include "base/strict_json.h"
#include "base/utf8.h"
#include "device/loadable_module.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "machine/arrow_data.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The files of a folder that save_to_disk has written.
constexpr const char* kStateFile = kDatasetStateFile;
constexpr const char* kInfoFile = "dataset_info.json";

const Module<ArrowOpener>& arrow_opener() {
  static const Module<ArrowOpener> loaded =
      load_module<ArrowOpener>("libhasten_arrow.so", "hasten_open_arrow");
  if (loaded.function == nullptr) {
    throw ConfigError("data.arrow-library",
                      {.what = "reading Arrow and Parquet files",
                       .got = loaded.missing,
                       .expected = "the module libhasten_arrow.so next to libhasten.so",
                       .hint = "run tools/fetch_pyarrow.sh, which fetches the libraries of Arrow, "
                               "and build hasten again"});
  }
  return loaded;
}

[[noreturn]] void fail_arrow_folder(const fs::path& folder, std::string got, std::string expected,
                                    std::string hint = "") {
  throw DataError("data.arrow-folder", {.what = folder.string(),
                                        .got = std::move(got),
                                        .expected = std::move(expected),
                                        .hint = std::move(hint)});
}

json read_folder_json(const fs::path& file) {
  json value = read_json_or_discard(file);
  if (value.is_object()) return value;
  fail_arrow_folder(file, "no JSON object", "what Dataset.save_to_disk writes");
}

// Returns the texts of a list under a key; nothing if it is absent or null.
std::vector<std::string> texts_under(const json& object, const char* key, const fs::path& file) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return {};
  try {
    return found->get<std::vector<std::string>>();
  } catch (const json::exception&) {
    fail_arrow_folder(file, str("the key \"", key, "\", which is not a list of texts"),
                      "what Dataset.save_to_disk writes");
  }
}

// Returns the shards of a folder in their order.
std::vector<fs::path> shards_of(const fs::path& folder, const json& state) {
  const fs::path file = folder / kStateFile;
  const auto indices = state.find("_indices_data_files");
  if (indices != state.end() && !indices->is_null() && !indices->empty()) {
    fail_arrow_folder(file, "rows that are selected by an index", "a folder without one",
                      "save it again with datasets 2 or later, which writes the selected rows");
  }
  std::vector<fs::path> shards;
  for (const json& each : state.value("_data_files", json::array())) {
    const json found = each.is_object() ? each.value("filename", json()) : json();
    const std::string name = found.is_string() ? found.get<std::string>() : "";
    if (name.empty() || name != fs::path(name).filename() || name == "..")
      fail_arrow_folder(file, "the data file " + each.dump(), "the name of a file in this folder");
    shards.push_back(folder / name);
  }
  if (shards.empty()) fail_arrow_folder(file, "no data files", "at least one");
  return shards;
}

// Returns the folder of one split.
fs::path folder_of_split(const fs::path& folder, const std::string& split) {
  std::error_code ignored;
  if (!fs::is_regular_file(folder / kDatasetSplitsFile, ignored)) {
    if (!fs::is_regular_file(folder / kStateFile, ignored))
      fail_arrow_folder(folder, str("no ", kStateFile), "a folder that Dataset.save_to_disk wrote");
    if (split.empty()) return folder;
    fail_arrow_folder(folder, "one dataset without splits", "a DatasetDict with " + split,
                      "leave out the split");
  }
  const fs::path file = folder / kDatasetSplitsFile;
  const std::vector<std::string> splits = texts_under(read_folder_json(file), "splits", file);
  if (std::find(splits.begin(), splits.end(), split) != splits.end() &&
      split == fs::path(split).filename())
    return folder / split;
  fail_arrow_folder(folder, "the splits " + join(splits, ", "),
                    split.empty() ? "the choice of one" : "the split " + split,
                    splits.empty() ? "" : "name the folder " + (folder / splits[0]).string());
}

// Returns the value under a key; null if there is none.
json member_of(const json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() ? json() : *found;
}

// Returns the description of its columns that the datasets library has written into a file.
json features_in(const std::string& text) {
  return member_of(member_of(parse_json_or_discard(text), "info"), "features");
}

// Returns the names of the classes of a column, which may be in lists.
std::vector<std::string> class_names_of(const json& features, const std::string& column) {
  if (!features.is_object()) return {};
  const auto found = features.find(column);
  if (found == features.end()) return {};
  const json* feature = &*found;
  while (feature->is_object() && feature->contains("feature")) feature = &feature->at("feature");
  if (feature->is_array() && feature->size() == 1)
    feature = &feature->at(0);  // datasets 1 writes a list of one feature
  if (!feature->is_object() || feature->value("_type", json("")) != "ClassLabel") return {};
  const auto names = feature->find("names");
  if (names == feature->end() || !names->is_array()) return {};
  std::vector<std::string> texts;
  for (const json& name : *names) {
    if (!name.is_string()) return {};
    texts.push_back(name.get<std::string>());
  }
  return texts;
}

bool is_same_column(const ArrowColumn& a, const ArrowColumn& b) {
  return a.name == b.name && a.value == b.value && a.lists == b.lists &&
         a.is_dictionary == b.is_dictionary;
}

std::vector<std::string> names_in(const std::vector<detail::ArrowDatasetColumn>& columns) {
  std::vector<std::string> names;
  for (const detail::ArrowDatasetColumn& column : columns) names.push_back(column.name);
  return names;
}

}  // namespace

namespace detail {

ArrowFiles::ArrowFiles(const fs::path& path, const std::string& split) : source_(path.string()) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    const fs::path folder = folder_of_split(path, split);
    source_ = folder.string();
    open_folder(folder);
  } else {
    if (!split.empty())
      fail_arrow_folder(path, "one file", "a folder with the split " + split,
                        "leave out the split");
    open_file(path);
    describe_columns(features_in(shards_[0].table->features()));
  }
}

void ArrowFiles::open_folder(const fs::path& folder) {
  const fs::path file = folder / kStateFile;
  const json state = read_folder_json(file);
  for (const fs::path& shard : shards_of(folder, state)) open_file(shard);
  chosen_ = texts_under(state, "_format_columns", file);
  std::error_code ignored;
  const fs::path info = folder / kInfoFile;
  describe_columns(fs::is_regular_file(info, ignored)
                       ? member_of(read_folder_json(info), "features")
                       : features_in(shards_[0].table->features()));
}

void ArrowFiles::open_file(const fs::path& file) {
  Shard shard{.name = file.string(), .first_row = rows_};
  shard.bytes = std::make_unique<MappedFile>(file);
  ArrowFile opened;
  arrow_opener().function(shard.bytes->bytes(), opened);
  if (!opened.problem.empty()) fail_file(shard.name, opened.problem);
  shard.table = std::move(opened.table);
  if (shard.table->rows() > INT64_MAX - rows_) fail_file(shard.name, "too many rows");
  rows_ += shard.table->rows();
  shards_.push_back(std::move(shard));
}

void ArrowFiles::describe_columns(const nlohmann::json& features) {
  const std::vector<ArrowColumn>& first = shards_[0].table->columns();
  for (const Shard& shard : shards_) {
    const std::vector<ArrowColumn>& own = shard.table->columns();
    if (!std::equal(own.begin(), own.end(), first.begin(), first.end(), is_same_column))
      fail_file(shard.name, "other columns than " + shards_[0].name);
  }
  for (std::size_t index = 0; index < first.size(); ++index) {
    ArrowDatasetColumn column;
    static_cast<ArrowColumn&>(column) = first[index];
    column.index = index;
    if (column.value == ArrowValue::integer) column.names = class_names_of(features, column.name);
    columns_.push_back(std::move(column));
  }
}

bool ArrowFiles::has(const std::string& column) const {
  return std::any_of(columns_.begin(), columns_.end(),
                     [&](const ArrowDatasetColumn& each) { return each.name == column; });
}

const ArrowDatasetColumn& ArrowFiles::column(const std::string& name) const {
  for (const ArrowDatasetColumn& each : columns_) {
    if (each.name == name) return each;
  }
  const std::vector<std::string> names = names_in(columns_);
  throw DataError("data.arrow-column", {.what = source_ + ": there is no column \"" + name + "\"",
                                        .got = "[" + join(names, ", ") + "]",
                                        .hint = did_you_mean(nearest(name, names), "", in_quotes)});
}

void ArrowFiles::read(const ArrowDatasetColumn& column, ArrowNullPolicy nulls) {
  std::vector<std::string> names;
  for (const Shard& shard : shards_) {
    const std::string where = shard.name + ", column \"" + column.name + "\"";
    ArrowTable& table = *shard.table;
    std::string problem = table.read(column.index);
    std::int64_t null_row = -1;
    if (problem.empty() && nulls == ArrowNullPolicy::refused)
      problem = table.first_null(column.index, null_row);
    if (problem.empty() && column.is_dictionary) {
      std::vector<std::string> own;
      problem = table.texts_of(column.index, own);
      const std::size_t both = std::min(own.size(), names.size());
      if (!std::equal(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(both), names.begin()))
        problem = "other texts for its numbers than in the files before";
      if (own.size() > names.size()) names = std::move(own);
    }
    if (!problem.empty()) fail_file(where, problem);
    if (null_row >= 0) Row(shard, null_row).fail(column, "a null", "a value in each row");
  }
  if (column.is_dictionary) columns_[column.index].names = std::move(names);
}

ArrowFiles::Row ArrowFiles::row(std::int64_t index) const {
  const auto after =
      std::upper_bound(shards_.begin(), shards_.end(), index,
                       [](std::int64_t at, const Shard& shard) { return at < shard.first_row; });
  const Shard& shard = *std::prev(after);
  return Row(shard, index - shard.first_row);
}

void ArrowFiles::fail_file(const std::string& file, const std::string& problem) {
  throw DataError("data.arrow",
                  {.what = file, .got = problem, .expected = "a complete Arrow or Parquet file"});
}

bool ArrowFiles::Row::is_null(const ArrowDatasetColumn& column) const {
  return shard_.table->is_null(column.index, row_);
}

ArrowCell ArrowFiles::Row::find(const ArrowDatasetColumn& column) const {
  ArrowCell cell;
  check(column, shard_.table->find(column.index, row_, cell));
  return cell;
}

std::vector<std::string_view> ArrowFiles::Row::texts(const ArrowDatasetColumn& column,
                                                     const ArrowCell& cell) const {
  std::vector<std::string_view> texts;
  check(column, shard_.table->texts(column.index, cell, texts));
  for (const std::string_view text : texts) {
    if (!is_utf8(text)) fail(column, "bytes that are not UTF-8", "a text");
  }
  return texts;
}

void ArrowFiles::Row::check(const ArrowDatasetColumn& column, const std::string& problem) const {
  if (problem.empty()) return;
  fail(column, problem, column.is_tensor() ? "values that a tensor can hold" : "texts");
}

void ArrowFiles::Row::fail(const ArrowDatasetColumn& column, const std::string& got,
                           const std::string& expected, const std::string& hint) const {
  throw DataError("data.arrow-column",
                  {.what = str(shard_.name, ", row ", row_, ", column \"", column.name, "\""),
                   .got = got,
                   .expected = expected,
                   .hint = hint});
}

}  // namespace detail
}  // namespace hasten
