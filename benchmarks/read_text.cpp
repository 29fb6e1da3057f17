// Measures how fast tables of text are read, in megabytes per second of one core: TSV, CSV with and
// without quotes, and JSON lines. Each file has a sentence, a class and a number per row. Prints
// one JSON line per format, with the rate of the fastest pass.
//
//   $ read_text [MEGABYTES] [PASSES]            # by default 64 3
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "cpu_seconds.h"
#include "hasten/data/text_reader.h"

namespace {

namespace fs = std::filesystem;

std::string sentence(std::uint64_t& state) {
  std::string text;
  for (int word = 0; word < 25; ++word) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    text += (word > 0 ? " " : "");
    text.append(2 + (state >> 33) % 8, static_cast<char>('a' + (state >> 40) % 26));
  }
  return state >> 60 == 0 ? text + " caf\xC3\xA9" : text;
}

std::string row_of(const std::string& format, const std::string& text, std::int64_t number) {
  const std::string last = std::to_string(number), name = number % 2 == 0 ? "even" : "odd";
  if (format == "tsv") return text + '\t' + name + '\t' + last + '\n';
  if (format == "csv") return text + ',' + name + ',' + last + '\n';
  if (format == "quoted.csv") return "\"" + text + ", \"\"so\"\"\"," + name + ',' + last + '\n';
  return R"({"text": ")" + text + R"( \"so\"", "label": ")" + name + R"(", "number": )" + last +
         "}\n";
}

void write(const fs::path& path, const std::string& format, std::int64_t bytes) {
  std::ofstream file(path, std::ios::binary);
  if (format == "tsv") file << "text\tlabel\tnumber\n";
  if (format.ends_with("csv")) file << "text,label,number\n";
  std::uint64_t state = 1;
  for (std::int64_t written = 0, number = 0; written < bytes; ++number) {
    const std::string row = row_of(format, sentence(state), number);
    file << row;
    written += static_cast<std::int64_t>(row.size());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t megabytes = argc > 1 ? std::atol(argv[1]) : 64;
  const int passes = argc > 2 ? std::atoi(argv[2]) : 3;
  for (const std::string format : {"tsv", "csv", "quoted.csv", "jsonl"}) {
    const fs::path path =
        fs::temp_directory_path() / ("read_text_" + std::to_string(getpid()) + "." + format);
    write(path, format, megabytes * 1000000);
    double best = std::numeric_limits<double>::max();
    std::int64_t rows = 0;
    for (int pass = 0; pass < passes; ++pass) {
      const double start = cpu_seconds();
      rows = hasten::read_text_table(path).rows();
      best = std::min(best, cpu_seconds() - start);
    }
    std::printf("{\"format\": \"%s\", \"megabytes\": %ld, \"rows\": %ld, \"mb_per_cpu_s\": %.0f}\n",
                format.c_str(), megabytes, rows, static_cast<double>(megabytes) / best);
    fs::remove(path);
  }
}
