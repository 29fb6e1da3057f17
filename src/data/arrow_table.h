// File: data/arrow_table.h (internal)
// The interface of the module libhasten_arrow.so, which reads files of Apache Arrow and Parquet
// with the C++ libraries of the pyarrow wheel. It is a separate library so that hasten needs
// neither of them.
//
//   ArrowFile file;
//   hasten_open_arrow(bytes, file);                    // `bytes` must outlive file.table
//   if (!file.problem.empty()) fail(file.problem);
//   std::string problem = file.table->read(0);         // a column, by its index
//   ArrowCell cell;
//   problem = file.table->find(0, row, cell);
//   std::vector<std::int64_t> values(static_cast<std::size_t>(cell.count));
//   problem = file.table->copy(0, cell, values.data());
//
// Functions return a problem as the end of a sentence that names the file, or an empty text. The
// contents of a file are checked when they are used: a damaged file is a problem, and never leads
// to a read outside of its bytes. Thread rule: open and read on one thread; then any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace hasten {

enum class ArrowValue { integer, number, boolean, text, other };

struct ArrowColumn {
  std::string name;
  std::string type;  // as Arrow writes it
  ArrowValue value =
      ArrowValue::other;  // the kind of the values of the column, or of the innermost of its lists
  std::size_t lists = 0;  // the number of nested lists
  bool is_dictionary = false;  // integers that stand for texts
};

// The values of one row.
struct ArrowCell {
  std::vector<std::int64_t> shape;  // the length of each list, from the outermost
  std::size_t chunk = 0;            // the number of the column's chunk
  std::int64_t first = 0, count = 0;
};

class ArrowTable {
 public:
  virtual ~ArrowTable() = default;

  virtual const std::vector<ArrowColumn>& columns() const = 0;
  virtual std::int64_t rows() const = 0;
  // The JSON text that the datasets library keeps in a file; empty if there is none.
  virtual const std::string& features() const = 0;

  // Makes a column ready. Arrow files stay on the disk; a column of a Parquet file is decoded.
  virtual std::string read(std::size_t column) = 0;
  // The texts that the integers of a dictionary stand for. The column must have been read.
  virtual std::string texts_of(std::size_t column, std::vector<std::string>& texts) const = 0;
  // True if the row as a whole is null. Nulls inside its lists do not count.
  virtual bool is_null(std::size_t column, std::int64_t row) const = 0;
  // Sets `row` to the first row with a null, or to -1.
  virtual std::string first_null(std::size_t column, std::int64_t& row) const = 0;

  // Finds the values of a row. A null is a problem, and so are inner lists of different lengths.
  virtual std::string find(std::size_t column, std::int64_t row, ArrowCell& cell) const = 0;
  // Copy the values of a cell to an array of `count` values. There is one overload for integers and
  // dictionaries, two for other numbers, and one for booleans. As a double, a number of 16 or 32
  // bits is the number that its shortest text means: 0.1 rather than 0.10000000149011612.
  virtual std::string copy(std::size_t column, const ArrowCell& cell, std::int64_t* to) const = 0;
  virtual std::string copy(std::size_t column, const ArrowCell& cell, float* to) const = 0;
  virtual std::string copy(std::size_t column, const ArrowCell& cell, double* to) const = 0;
  virtual std::string copy(std::size_t column, const ArrowCell& cell, bool* to) const = 0;
  // Returns views of the texts of a cell. They are valid as long as the table exists.
  virtual std::string texts(std::size_t column, const ArrowCell& cell,
                            std::vector<std::string_view>& to) const = 0;
};

struct ArrowFile {
  std::unique_ptr<ArrowTable> table;
  std::string problem;  // why there is no table; empty if there is one
};

// The memory that the values of a file of this size may take once they are decompressed and
// decoded. The values of an uncompressed Arrow file are views of the file and take none.
constexpr std::int64_t max_decoded_bytes(std::int64_t file_bytes) {
  return (std::int64_t{256} << 20) + 1024 * file_bytes;
}

using ArrowOpener = void(std::string_view bytes, ArrowFile& file);

}  // namespace hasten

extern "C" __attribute__((visibility("default"))) hasten::ArrowOpener hasten_open_arrow;
