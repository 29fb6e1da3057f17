// A libFuzzer target for tokenizer.json of every kind of tokenizer, and for the texts that it
// encodes. The input is a text, a byte 0, and the file. An accepted tokenizer encodes the text,
// which need not be UTF-8, with and without offsets, and decodes the result.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "hasten/base/error.h"
#include "parsed_file.h"
#include "tokenizers/normalizer.h"
#include "tokenizers/pipeline/pipeline_json.h"
#include "tokenizers/text_properties.h"
#include "tokenizers/unicode.h"

namespace {

using namespace hasten;
using namespace hasten::tokenizers;

// Builds the tables that do not depend on the file.
bool build_tables() {
  Unicode::get();
  TextProperties::get();
  for (const bool lowercase : {false, true})
    for (const bool strip_accents : {false, true})
      for (const bool ideographs : {false, true})
        for (const bool clean_text : {false, true})
          Normalizer::get({clean_text, ideographs, strip_accents, lowercase});
  return true;
}

void use(const Pipeline& pipeline, std::string_view text) {
  PipelineEncoder encoder;
  TextTokens with, without, again;
  BlankCounts blanks;
  encoder.run(pipeline, text, true, SIZE_MAX, with, &blanks);
  encoder.run(pipeline, text, false, SIZE_MAX, without, nullptr);
  encoder.run(pipeline, text, true, SIZE_MAX, again, &blanks);
  if (with.ids != without.ids || with.offsets != again.offsets) std::abort();
  if (with.offsets.size() != with.ids.size() || blanks.size() != with.ids.size()) std::abort();
  trim_offsets(pipeline.post, blanks, 0, with);
  decode_ids(pipeline, with.ids, true);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool are_built = build_tables();
  static_cast<void>(are_built);
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t zero = input.find('\0');
  if (zero == std::string_view::npos) return 0;
  static const fuzz::MemoryFile file;
  file.write(input.substr(zero + 1));
  const fuzz::MemoryLimit limit(size);
  try {
    use(read_pipeline(file.path()), input.substr(0, zero));
  } catch (const Error&) {
  }
  return 0;
}
