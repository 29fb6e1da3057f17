#include "machine/arrow_data.h"

#include <string>
#include <system_error>

#include "hasten/base/text.h"

namespace hasten {

namespace fs = std::filesystem;

bool is_arrow_data(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored))
    return fs::is_regular_file(path / kDatasetStateFile, ignored) ||
           fs::is_regular_file(path / kDatasetSplitsFile, ignored);
  const std::string ending = lower(path.extension().string());
  return ending == ".arrow" || ending == ".parquet";
}

}  // namespace hasten
