// File: data/arrow_module/column.h (internal)
// A column of an Arrow table. Its rows are found and copied one at a time.
//
//   Column column;
//   column.add(array);                       // the next rows
//   std::string problem = column.find(row, cell);
//
// Arrow's Validate() has checked the lengths of the buffers. It does not check the offsets of lists
// and texts and the numbers of a dictionary. These are checked for each row that is read, so that
// opening a large file does not read all of it. Thread rule: reading is safe on many threads.
#pragma once

#include <arrow/api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/arrow_table.h"

namespace hasten::arrow_files {

// The kind of values that a column of this type holds, without its name.
ArrowColumn describe(const arrow::DataType& type);

class Column {
 public:
  std::string add(const std::shared_ptr<arrow::Array>& array);
  bool is_empty() const { return chunks_.empty(); }
  std::int64_t rows() const { return rows_; }

  std::string texts_of(std::vector<std::string>& texts) const;
  bool is_null(std::int64_t row) const;
  std::string first_null(std::int64_t& row) const;
  std::string find(std::int64_t row, ArrowCell& cell) const;
  std::string copy(const ArrowCell& cell, std::int64_t* to) const;
  std::string copy(const ArrowCell& cell, float* to) const;
  std::string copy(const ArrowCell& cell, double* to) const;
  std::string copy(const ArrowCell& cell, bool* to) const;
  std::string texts(const ArrowCell& cell, std::vector<std::string_view>& to) const;

 private:
  using Arrays = std::vector<std::shared_ptr<arrow::Array>>;
  // The rows of one array.
  struct Chunk {
    std::int64_t first_row = 0;
    Arrays lists;  // from the outermost
    std::shared_ptr<arrow::Array> values;

    // The array with an element for each row.
    const arrow::Array& outermost() const { return lists.empty() ? *values : *lists[0]; }
  };
  const Chunk& chunk_of(std::int64_t row) const;
  const arrow::Array& values_of(const ArrowCell& cell) const { return *chunks_[cell.chunk].values; }

  std::vector<Chunk> chunks_;
  std::int64_t rows_ = 0;
};

}  // namespace hasten::arrow_files
