// Measures how many rows per second a loader returns. The rows have 512 int64 token ids and a
// label, as in benchmarks/python/dataloader.py for PyTorch's loader. Prints one JSON line per case
// with the rate of the fastest pass, as that program does.
//
//   $ loader [ROWS] [LENGTH] [PASSES]            # by default 4096 512 5
#include <ATen/Parallel.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>

#include "cpu_seconds.h"
#include "hasten/data/column_dataset.h"
#include "hasten/data/loader.h"

namespace {

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Rate {
  double wall = std::numeric_limits<double>::max(),
         cpu = std::numeric_limits<double>::max();  // seconds per pass
};

template <class Batch>
Rate measure(hasten::Loader<Batch>& loader, std::int64_t rows, int passes) {
  Rate best;
  for (int pass = 0; pass < passes; ++pass) {
    std::int64_t seen = 0;
    const double wall = wall_seconds(), cpu = cpu_seconds();
    for (hasten::TensorDict& batch : loader) seen += batch.at("labels").size(0);
    best.wall = std::min(best.wall, wall_seconds() - wall);
    best.cpu = std::min(best.cpu, cpu_seconds() - cpu);
    if (seen != rows) std::abort();
  }
  return best;
}

void print(const std::string& kind, const hasten::LoaderOptions& options, std::int64_t rows,
           std::int64_t length, const Rate& rate) {
  std::printf(
      "{\"kind\": \"%s\", \"rows\": %ld, \"seq\": %ld, \"batch\": %ld, \"shuffle\": %d, "
      "\"workers\": %ld, "
      "\"rows_per_s\": %.0f, \"rows_per_cpu_s\": %.0f, \"mtokens_per_s\": %.2f}\n",
      kind.c_str(), rows, length, options.batch_size, options.shuffle, options.num_workers,
      rows / rate.wall, rows / rate.cpu, rows * length / rate.wall / 1e6);
}

// A user's dataset, which returns single rows that a collator then stacks.
struct DictRows {
  hasten::ColumnDataset columns;
  std::int64_t size() const { return columns.size(); }
  hasten::TensorDict get(std::int64_t index) const { return columns.get(index); }
};

hasten::TokenDataset tokens_of(const hasten::ColumnDataset& columns, std::int64_t length) {
  hasten::TokenDataset tokens;
  const at::Tensor ids = columns.columns().at("input_ids").to(at::kInt);
  for (std::int64_t row = 0; row < columns.size(); ++row) {
    tokens.push_back({ids[row].const_data_ptr<std::int32_t>(), static_cast<std::size_t>(length)});
  }
  tokens.set_labels(columns.columns().at("labels"));
  return tokens;
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t rows = argc > 1 ? std::atoll(argv[1]) : 4096,
                     length = argc > 2 ? std::atoll(argv[2]) : 512;
  const int passes = argc > 3 ? std::atoi(argv[3]) : 5;
  at::set_num_threads(1);
  const hasten::ColumnDataset columns = hasten::dummy_classification(rows, length);
  const auto tokens = std::make_shared<hasten::TokenDataset>(tokens_of(columns, length));
  for (const bool shuffle : {true, false}) {
    for (const std::int64_t batch : {4, 8, 32}) {
      for (const std::int64_t workers : {0, 2}) {
        const hasten::LoaderOptions options{
            .batch_size = batch, .shuffle = shuffle, .num_workers = workers};
        auto whole = hasten::make_loader(columns, options);
        print("columns", options, rows, length, measure(whole, rows, passes));
        auto dicts = hasten::make_loader(DictRows{columns}, options);
        print("dict_rows", options, rows, length, measure(dicts, rows, passes));
        auto padded = hasten::make_loader(tokens, options, hasten::DataCollatorWithPadding{});
        print("token_rows_padded", options, rows, length, measure(padded, rows, passes));
      }
    }
  }
}
