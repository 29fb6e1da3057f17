// A libFuzzer target for the safetensors header. CMakeLists.txt builds it without LibTorch.
//
// The first byte selects whether the length of the header is corrected, so that the fuzzer need not
// guess it. The tensors of an accepted header must cover the data exactly, and composing and
// parsing it again must give the same header.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "formats/safetensors_header.h"
#include "hasten/base/error.h"
#include "parsed_file.h"

using namespace hasten;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

std::string with_correct_length(std::string bytes) {
  const std::size_t end = bytes.rfind('}');
  if (end == std::string::npos || end < 8) return bytes;
  const std::size_t length = end + 1 - 8;
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(length >> (8 * i) & 0xFF);
  return bytes;
}

void check(const safetensors::Header& header, std::size_t file_size) {
  std::uint64_t end = 0;
  for (const safetensors::Entry& entry : header.entries) {
    require(entry.begin == end && entry.end >= entry.begin);
    unsigned __int128 elements = 1;
    for (const std::int64_t size : entry.shape) {
      require(size >= 0);
      elements *= static_cast<unsigned __int128>(size);
      require(elements < (static_cast<unsigned __int128>(1) << 63));
    }
    require(elements * entry.dtype->bits ==
            static_cast<unsigned __int128>(entry.end - entry.begin) * 8);
    end = entry.end;
  }
  require(header.data_begin + end == file_size);
}

void check_round_trip(const safetensors::Header& header, std::size_t data) {
  const std::string again = safetensors::compose_header(header.entries, header.metadata, "again");
  const safetensors::Header second =
      safetensors::parse_header(again + std::string(data, '\0'), "again");
  require(second.metadata == header.metadata && second.entries.size() == header.entries.size());
  for (std::size_t i = 0; i < second.entries.size(); ++i) {
    require(second.entries[i].name == header.entries[i].name);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) bytes = with_correct_length(std::move(bytes));
  const auto parse = [&] {
    const fuzz::MemoryLimit limit(bytes.size());
    return safetensors::parse_header(bytes, "input");
  };
  try {
    const safetensors::Header header = parse();
    check(header, bytes.size());
    check_round_trip(header, bytes.size() - header.data_begin);
  } catch (const DataError&) {
  }
  return 0;
}
