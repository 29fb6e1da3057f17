// A libFuzzer target for the JSON files of a model's folder: the configurations of all models,
// generation_config.json, preprocessor_config.json and the index of the weights. CMakeLists.txt
// builds it with LibTorch, whose libraries are not instrumented. The first byte selects the file.
// If a configuration is accepted, it is written as text, and reading the text must give the same
// configuration.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "formats/weights_index.h"
#include "hasten/base/error.h"
#include "hasten/data/images.h"
#include "hasten/models/detail/bert_config.h"
#include "hasten/models/detail/gpt2_config.h"
#include "hasten/models/detail/llama_config.h"
#include "hasten/models/generation.h"
#include "hasten/models/resnet.h"
#include "hasten/models/vit.h"
#include "parsed_file.h"

namespace {

using namespace hasten;

template <class Config>
void read_config(const std::string& text) {
  const std::string once = Config::from_json(text, "input").to_json();
  if (Config::from_json(once, "output").to_json() != once) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static const fuzz::MemoryFolder folder;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const fuzz::MemoryLimit limit(size);
  try {
    switch (data[0] % 8) {
      case 0:
        read_config<BertConfig>(text);
        break;
      case 1:
        read_config<GPT2Config>(text);
        break;
      case 2:
        read_config<LlamaConfig>(text);
        break;
      case 3:
        read_config<ViTConfig>(text);
        break;
      case 4:
        read_config<ResNetConfig>(text);
        break;
      case 5:
        folder.write("generation_config.json", text);
        (void)generation_defaults(folder.path().string());
        break;
      case 6:
        (void)ImageProcessing::from_json(text, "input", {});
        break;
      default:
        (void)read_weights_index(folder.write("model.safetensors.index.json", text));
    }
  } catch (const Error&) {
  }
  return 0;
}
