// A libFuzzer target for the pickles of torch.save, in an archive. CMakeLists.txt builds it without
// LibTorch.
//
// The first byte selects the meaning of the other bytes, so that the fuzzer need not guess
// checksums. The rest is a whole archive, or the pickle of an archive with two storages. Every
// tensor of an accepted file lies in its storage, and reading takes no more memory than the limit
// of all readers allows.
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>

#include "formats/pickle_archive.h"
#include "hasten/base/error.h"
#include "parsed_file.h"
#include "zip_bytes.h"

using namespace hasten;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const PickleArchive& archive, const pickle::Value& tensor) {
  const auto sizes = pickle::sizes_of(tensor), strides = pickle::strides_of(tensor);
  require(sizes.size() == strides.size() && tensor.integer >= 0);
  unsigned __int128 last = static_cast<unsigned __int128>(tensor.integer), elements = 1;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    require(sizes[d] >= 0 && strides[d] >= 0);
    elements *= static_cast<unsigned __int128>(sizes[d]);
    if (sizes[d] > 0)
      last +=
          static_cast<unsigned __int128>(sizes[d] - 1) * static_cast<unsigned __int128>(strides[d]);
  }
  const std::size_t bytes = archive.storage_size(tensor);
  require(elements * tensor.type->bytes <= bytes);
  require(elements == 0 || (last + 1) * tensor.type->bytes <= bytes);
  if (elements > 0) require(archive.bytes_of(tensor) != nullptr);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 4 != 0) {
    bytes = archive_of({{"m/byteorder", "little"},
                        {"m/data.pkl", "\x80\x02" + bytes},
                        {"m/data/0", std::string(64, '\1')},
                        {"m/data/1", std::string(8, '\0')}});
  }
  static const fuzz::MemoryFile file;
  file.write(bytes);
  const fuzz::MemoryLimit limit(8 * bytes.size());  // as in formats/pickle.h
  try {
    const PickleArchive archive(file.path());
    for (const auto& [name, tensor] : archive.tensors()) check(archive, *tensor);
  } catch (const DataError&) {
  }
  return 0;
}
