// A libFuzzer target for the files of a tokenizer: tokenizer.json and vocab.txt. CMakeLists.txt
// builds it without LibTorch. The first byte selects the file. An accepted tokenizer must encode
// and decode a text.
#include <cstdint>
#include <string>

#include "hasten/base/error.h"
#include "parsed_file.h"
#include "tokenizers/definition.h"
#include "tokenizers/state.h"
#include "tokenizers/text_encoder.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hasten;
  if (size == 0) return 0;
  static const fuzz::MemoryFile file;
  file.write({reinterpret_cast<const char*>(data) + 1, size - 1});
  const fuzz::MemoryLimit limit(size);
  try {
    tokenizers::Definition definition =
        data[0] % 2 == 0 ? tokenizers::definition_from_json(file.path())
                         : tokenizers::definition_from_vocab(file.path(), TokenizerOptions{});
    const BertTokenizer::State state(std::move(definition));
    if (state.size() < 0) std::abort();
    for (std::int32_t id = 0; id < state.size() && id < 100; ++id) {
      const std::string* token = state.token(id);
      if (token != nullptr && !state.find(*token)) std::abort();
    }
  } catch (const Error&) {
  }
  return 0;
}
