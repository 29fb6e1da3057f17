// File: data/arrow_files.h (internal)
// Presents the files of an Arrow or Parquet dataset as one table. A dataset is a file, or a folder
// of the datasets library with its shards and the description of the columns in dataset_info.json.
//
//   ArrowFiles files("tokenized", "train");
//   const ArrowDatasetColumn& ids = files.column("input_ids");
//   files.read(ids);
//   const ArrowFiles::Row row = files.row(12);
//   const ArrowCell cell = row.find(ids);
//
// Throws what load_arrow_dataset (hasten/data/arrow_dataset.h) throws. Thread rule: read() on one
// thread; then any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "data/arrow_table.h"
#include "formats/mapped_file.h"

namespace hasten::detail {

// A column of all files.
struct ArrowDatasetColumn : ArrowColumn {
  std::size_t index = 0;           // in each file
  std::vector<std::string> names;  // the names of its integers; empty if they have none

  bool is_tensor() const {
    return value == ArrowValue::integer || value == ArrowValue::number ||
           value == ArrowValue::boolean;
  }
};

enum class ArrowNullPolicy { refused, kept };

class ArrowFiles {
  struct Shard {
    std::string name;
    std::unique_ptr<MappedFile> bytes;  // outlives the table
    std::unique_ptr<ArrowTable> table;
    std::int64_t first_row = 0;
  };

 public:
  // `split` selects one split of a folder with several. Otherwise it is empty.
  explicit ArrowFiles(const std::filesystem::path& path, const std::string& split = "");

  // A row of one of the files.
  class Row {
   public:
    bool is_null(const ArrowDatasetColumn& column) const;
    ArrowCell find(const ArrowDatasetColumn& column) const;
    template <class Number>
    void copy(const ArrowDatasetColumn& column, const ArrowCell& cell, Number* to) const {
      check(column, shard_.table->copy(column.index, cell, to));
    }
    // The texts of a text column, which must be UTF-8.
    std::vector<std::string_view> texts(const ArrowDatasetColumn& column,
                                        const ArrowCell& cell) const;
    [[noreturn]] void fail(const ArrowDatasetColumn& column, const std::string& got,
                           const std::string& expected, const std::string& hint = "") const;

   private:
    friend class ArrowFiles;
    Row(const Shard& shard, std::int64_t row) : shard_(shard), row_(row) {}
    void check(const ArrowDatasetColumn& column, const std::string& problem) const;

    const Shard& shard_;
    std::int64_t row_;  // its number in the file
  };

  const std::string& source() const { return source_; }
  std::int64_t rows() const { return rows_; }
  const std::vector<ArrowDatasetColumn>& columns() const { return columns_; }
  // The columns that set_format has selected; empty if it has selected none.
  const std::vector<std::string>& chosen() const { return chosen_; }
  bool has(const std::string& column) const;
  // Throws "data.arrow-column", which suggests the nearest name.
  const ArrowDatasetColumn& column(const std::string& name) const;
  // Makes the rows of a column readable.
  void read(const ArrowDatasetColumn& column, ArrowNullPolicy nulls = ArrowNullPolicy::refused);
  Row row(std::int64_t index) const;

 private:
  void open_folder(const std::filesystem::path& folder);
  void open_file(const std::filesystem::path& file);
  // Takes the features of dataset_info.json, or null.
  void describe_columns(const nlohmann::json& features);
  [[noreturn]] static void fail_file(const std::string& file, const std::string& problem);

  std::string source_;
  std::vector<Shard> shards_;
  std::vector<ArrowDatasetColumn> columns_;
  std::vector<std::string> chosen_;
  std::int64_t rows_ = 0;
};

}  // namespace hasten::detail
