// Measures how fast the lines of a text are encoded, in megabytes per second of one core, with and
// without offsets. For each tokenizer.json of a folder it measures the first pass, which starts
// with an empty cache of words, and the median of the later passes. Prints one JSON line per file.
//
//   $ tokens FOLDER TEXT [PASSES]            # by default 9
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cpu_seconds.h"
#include "hasten/tokenizers/tokenizer.h"

namespace {

namespace fs = std::filesystem;

std::vector<std::string> lines_of(const fs::path& path, double& megabytes) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    megabytes += static_cast<double>(line.size()) / 1e6;
    lines.push_back(line);
  }
  return lines;
}

std::vector<double> rates(const fs::path& path, const std::vector<std::string>& lines,
                          double megabytes, int passes, bool offsets, std::size_t& tokens) {
  const auto tokenizer = hasten::Tokenizer::from_file(path);
  std::vector<double> found;
  for (int pass = 0; pass <= passes; ++pass) {
    tokens = 0;
    const double start = cpu_seconds();
    for (const std::string& line : lines)
      tokens += tokenizer.encode(line, {.offsets = offsets}).size();
    found.push_back(megabytes / (cpu_seconds() - start));
  }
  return found;
}

double median_after_first(std::vector<double> values) {
  std::sort(values.begin() + 1, values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const int passes = argc > 3 ? std::atoi(argv[3]) : 9;
  double megabytes = 0;
  const std::vector<std::string> lines = lines_of(argv[2], megabytes);
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(argv[1])) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    std::size_t tokens = 0;
    const std::vector<double> with = rates(file, lines, megabytes, passes, true, tokens);
    const std::vector<double> without = rates(file, lines, megabytes, passes, false, tokens);
    std::printf(
        "{\"kind\": \"%s\", \"tokens\": %zu, \"first\": %.2f, \"later\": %.2f, \"first_ids\": "
        "%.2f, \"later_ids\": %.2f}\n",
        file.stem().c_str(), tokens, with[0], median_after_first(with), without[0],
        median_after_first(without));
  }
}
