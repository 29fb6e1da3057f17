#include <arrow/api.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/reader.h>
#include <parquet/arrow/reader.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <memory>
#include <utility>

#include "data/arrow_module/column.h"

namespace hasten::arrow_files {
namespace {

// The end of a stream: the mark of a message, and its length 0.
constexpr std::string_view kEndOfStream("\xff\xff\xff\xff\0\0\0\0", 8);
constexpr const char* kFeaturesKey = "huggingface";

using Memory = std::shared_ptr<arrow::MemoryPool>;

// Returns the memory into which the values of a file of this size are decompressed and decoded. A
// few bytes can stand for any number of values. If a file requests too much memory, this is an
// error about the file and does not end the process.
Memory memory_for(std::string_view bytes) {
  const std::int64_t machine =
      static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return std::make_shared<arrow::CappedMemoryPool>(
      arrow::default_memory_pool(),
      std::min(machine, max_decoded_bytes(static_cast<std::int64_t>(bytes.size()))));
}

std::string features_in(const arrow::Schema& schema) {
  if (!schema.metadata()) return "";
  const arrow::Result<std::string> found = schema.metadata()->Get(kFeaturesKey);
  return found.ok() ? *found : "";
}

// The columns of a table. A derived class fills them.
class Table : public ArrowTable {
 public:
  Table(const arrow::Schema& schema, Memory memory)
      : memory_(std::move(memory)),
        columns_(static_cast<std::size_t>(schema.num_fields())),
        features_(features_in(schema)) {
    for (const auto& field : schema.fields()) {
      column_types_.push_back(describe(*field->type()));
      column_types_.back().name = field->name();
    }
  }

  const std::vector<ArrowColumn>& columns() const override { return column_types_; }
  std::int64_t rows() const override { return rows_; }
  const std::string& features() const override { return features_; }

  std::string texts_of(std::size_t column, std::vector<std::string>& texts) const override {
    return columns_[column].texts_of(texts);
  }
  bool is_null(std::size_t column, std::int64_t row) const override {
    return columns_[column].is_null(row);
  }
  std::string first_null(std::size_t column, std::int64_t& row) const override {
    return columns_[column].first_null(row);
  }
  std::string find(std::size_t column, std::int64_t row, ArrowCell& cell) const override {
    return columns_[column].find(row, cell);
  }
  std::string copy(std::size_t column, const ArrowCell& cell, std::int64_t* to) const override {
    return columns_[column].copy(cell, to);
  }
  std::string copy(std::size_t column, const ArrowCell& cell, float* to) const override {
    return columns_[column].copy(cell, to);
  }
  std::string copy(std::size_t column, const ArrowCell& cell, double* to) const override {
    return columns_[column].copy(cell, to);
  }
  std::string copy(std::size_t column, const ArrowCell& cell, bool* to) const override {
    return columns_[column].copy(cell, to);
  }
  std::string texts(std::size_t column, const ArrowCell& cell,
                    std::vector<std::string_view>& to) const override {
    return columns_[column].texts(cell, to);
  }

 private:
  Memory memory_;  // outlives the columns, and what a derived class has read

 protected:
  bool has_type(std::size_t column, const arrow::DataType& type) const {
    const ArrowColumn own = describe(type);
    const ArrowColumn& expected = column_types_[column];
    return own.value == expected.value && own.lists == expected.lists &&
           own.is_dictionary == expected.is_dictionary;
  }

  std::vector<Column> columns_;
  std::int64_t rows_ = 0;

 private:
  std::vector<ArrowColumn> column_types_;
  std::string features_;
};

// A table of Arrow's formats. Its arrays are views of the file.
class BatchTable : public Table {
 public:
  using Table::Table;

  std::string add(std::shared_ptr<arrow::RecordBatch> batch) {
    const std::int64_t rows = batch->num_rows();
    if (rows < 0 || rows > std::numeric_limits<std::int64_t>::max() - rows_)
      return "a number of rows that no file has (it is damaged)";
    rows_ += rows;
    batches_.push_back(std::move(batch));
    return "";
  }
  std::string read(std::size_t column) override {
    if (!columns_[column].is_empty()) return "";
    for (const auto& batch : batches_) {
      const auto array = batch->column(static_cast<int>(column));
      std::string problem = array->length() != batch->num_rows()
                                ? "a column that is shorter than others (it is damaged)"
                                : columns_[column].add(array);
      if (!problem.empty()) return problem;
    }
    return "";
  }

 private:
  std::vector<std::shared_ptr<arrow::RecordBatch>> batches_;
};

class ParquetTable : public Table {
 public:
  ParquetTable(const arrow::Schema& schema, Memory memory,
               std::unique_ptr<parquet::arrow::FileReader> reader)
      : Table(schema, std::move(memory)), reader_(std::move(reader)) {
    rows_ = reader_->parquet_reader()->metadata()->num_rows();
  }

  std::string read(std::size_t column) override {
    if (!columns_[column].is_empty()) return "";
    try {
      std::shared_ptr<arrow::ChunkedArray> values;
      const arrow::Status status = reader_->ReadColumn(static_cast<int>(column), &values);
      if (!status.ok()) return status.message();
      if (!has_type(column, *values->type())) return "values whose type differs from the schema";
      if (values->length() != rows_) return "a column that is shorter than others (it is damaged)";
      for (const auto& chunk : values->chunks()) {
        std::string problem = columns_[column].add(chunk);
        if (!problem.empty()) return problem;
      }
      return "";
    } catch (const std::exception& error) {
      return error.what();
    }
  }

 private:
  std::unique_ptr<parquet::arrow::FileReader> reader_;
};

arrow::ipc::IpcReadOptions reading_options(const Memory& memory) {
  arrow::ipc::IpcReadOptions options = arrow::ipc::IpcReadOptions::Defaults();
  options.memory_pool = memory.get();
  options.use_threads = false;
  options.ensure_alignment = arrow::ipc::Alignment::kDataTypeSpecificAlignment;
  return options;
}

void open_stream(std::string_view bytes, const std::shared_ptr<arrow::io::BufferReader>& input,
                 ArrowFile& file) {
  const Memory memory = memory_for(bytes);
  const auto reader =
      arrow::ipc::RecordBatchStreamReader::Open(input.get(), reading_options(memory));
  if (!reader.ok()) {
    file.problem = reader.status().message();
    return;
  }
  auto table = std::make_unique<BatchTable>(*(*reader)->schema(), memory);
  for (;;) {
    std::shared_ptr<arrow::RecordBatch> batch;
    const arrow::Status status = (*reader)->ReadNext(&batch);
    file.problem = status.ok() ? "" : status.message();
    if (!file.problem.empty()) return;
    if (!batch) break;
    file.problem = table->add(std::move(batch));
    if (!file.problem.empty()) return;
  }
  const auto read = static_cast<std::size_t>(input->Tell().ValueOr(0));
  if (!bytes.substr(0, read).ends_with(kEndOfStream)) {
    file.problem = "no mark at its end (it was not written completely)";
    return;
  }
  file.table = std::move(table);
}

void open_batches(std::string_view bytes, const std::shared_ptr<arrow::io::BufferReader>& input,
                  ArrowFile& file) {
  const Memory memory = memory_for(bytes);
  const auto reader = arrow::ipc::RecordBatchFileReader::Open(input, reading_options(memory));
  if (!reader.ok()) {
    file.problem = reader.status().message();
    return;
  }
  auto table = std::make_unique<BatchTable>(*(*reader)->schema(), memory);
  for (int i = 0; i < (*reader)->num_record_batches(); ++i) {
    auto batch = (*reader)->ReadRecordBatch(i);
    file.problem = batch.ok() ? table->add(*std::move(batch)) : batch.status().message();
    if (!file.problem.empty()) return;
  }
  file.table = std::move(table);
}

void open_parquet(std::string_view bytes, const std::shared_ptr<arrow::io::BufferReader>& input,
                  ArrowFile& file) {
  const Memory memory = memory_for(bytes);
  parquet::arrow::FileReaderBuilder builder;
  parquet::ArrowReaderProperties properties;
  properties.set_use_threads(false);
  properties.set_pre_buffer(false);
  arrow::Status status = builder.Open(input, parquet::ReaderProperties(memory.get()));
  std::unique_ptr<parquet::arrow::FileReader> reader;
  if (status.ok()) {
    builder.memory_pool(memory.get())->properties(properties);
    status = builder.Build(&reader);
  }
  std::shared_ptr<arrow::Schema> schema;
  if (status.ok()) status = reader->GetSchema(&schema);
  if (!status.ok()) {
    file.problem = status.message();
    return;
  }
  file.table = std::make_unique<ParquetTable>(*schema, memory, std::move(reader));
}

}  // namespace
}  // namespace hasten::arrow_files

void hasten_open_arrow(std::string_view bytes, hasten::ArrowFile& file) {
  using namespace hasten::arrow_files;
  try {
    const auto input = std::make_shared<arrow::io::BufferReader>(
        std::make_shared<arrow::Buffer>(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                        static_cast<std::int64_t>(bytes.size())));
    if (bytes.starts_with("PAR1")) {
      open_parquet(bytes, input, file);
    } else if (bytes.starts_with("ARROW1")) {
      open_batches(bytes, input, file);
    } else {
      open_stream(bytes, input, file);
    }
  } catch (const std::exception& error) {
    file.table.reset();
    file.problem = error.what();
  }
}
