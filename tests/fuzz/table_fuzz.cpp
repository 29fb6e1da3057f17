// A libFuzzer target for tables of texts: TSV, CSV, JSON lines, plain lines, and words with tags.
// The first byte selects the format. Every row of an accepted table has a text in each column.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "data/arrow_texts.h"
#include "hasten/base/error.h"
#include "hasten/data/tagged_words.h"
#include "hasten/data/text_reader.h"
#include "parsed_file.h"

// The names of the files are never names of Arrow data, whose readers are not a part of this
// program.
namespace hasten::detail {
TextTable read_arrow_texts(const std::filesystem::path&, const TextOptions&) { std::abort(); }
TaggedWords read_arrow_words(const std::filesystem::path&, const TaggedWordsOptions&) {
  std::abort();
}
}  // namespace hasten::detail

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hasten;
  if (size == 0) return 0;
  static const fuzz::MemoryFile file;
  file.write({reinterpret_cast<const char*>(data) + 1, size - 1});
  const fuzz::MemoryLimit limit(size);
  try {
    switch (data[0] % 5) {
      case 0:
        (void)read_tsv(file.path());
        break;
      case 1:
        (void)read_csv(file.path());
        break;
      case 2:
        (void)read_jsonl(file.path());
        break;
      case 3:
        (void)read_text_lines(file.path());
        break;
      default:
        (void)read_tagged_words(file.path());
    }
  } catch (const DataError&) {
  }
  return 0;
}
