// Writes the first images of scikit-learn's digits (tests/oracle/data/tasks/digits.tsv) as files.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "hasten/base/files.h"
#include "images/png_writer.h"

namespace hasten::images {

struct DigitFile {
  std::string label;
  std::string png;
};

inline std::vector<DigitFile> read_digits(const std::filesystem::path& file, std::size_t rows) {
  std::istringstream lines(read_file(file));
  std::vector<DigitFile> out;
  for (std::string line; out.size() < rows && std::getline(lines, line);) {
    const std::size_t tab = line.find('\t');
    std::string pixels;
    for (const char each : line.substr(tab + 1)) {
      const int value = each <= '9' ? each - '0' : each - 'a' + 10;
      pixels += static_cast<char>((value * 255 + 8) / 16);
    }
    out.push_back({line.substr(0, tab), png(pixels, {.height = 8, .width = 8})});
  }
  return out;
}

// Writes rows `from` to `to` as images, and writes a table with their file names and labels.
// Returns the table's path.
inline std::string write_digit_table(const std::vector<DigitFile>& digits, std::size_t from,
                                     std::size_t to, const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  std::string table = "file\tlabel\n";
  for (std::size_t row = from; row < to; ++row) {
    const std::string name = std::to_string(row) + ".png";
    write_file_atomically(folder / name, digits.at(row).png);
    table += name + "\t" + digits[row].label + "\n";
  }
  write_file_atomically(folder / "labels.tsv", table);
  return (folder / "labels.tsv").string();
}

}  // namespace hasten::images
