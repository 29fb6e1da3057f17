#include "hasten/base/text.h"
#include "hasten/models/resnet.h"
#include "models/config_reader.h"

namespace hasten {

ResNetConfig ResNetConfig::from_json(const std::string& text, const std::string& where) {
  ConfigReader reader(text, where);
  reader.require_model_type("resnet");
  ResNetConfig config;
  reader.read("num_channels", config.num_channels);
  reader.read("embedding_size", config.embedding_size);
  reader.read("hidden_sizes", config.hidden_sizes);
  reader.read("depths", config.depths);
  reader.read("layer_type", config.layer_type);
  reader.read("hidden_act", config.hidden_act);
  reader.read("downsample_in_first_stage", config.downsample_in_first_stage);
  reader.read("downsample_in_bottleneck", config.downsample_in_bottleneck);
  reader.read_head(config);
  config.other_keys = reader.other_keys();
  config.check(where);
  return config;
}

std::string ResNetConfig::to_json() const {
  nlohmann::json object = config_object("resnet", *this);
  object["num_channels"] = num_channels;
  object["embedding_size"] = embedding_size;
  object["hidden_sizes"] = hidden_sizes;
  object["depths"] = depths;
  object["layer_type"] = layer_type;
  object["hidden_act"] = hidden_act;
  object["downsample_in_first_stage"] = downsample_in_first_stage;
  object["downsample_in_bottleneck"] = downsample_in_bottleneck;
  return object.dump(2) + "\n";
}

void ResNetConfig::check(const std::string& where) const {
  const ConfigChecks check(where);
  check.positive("num_channels", num_channels);
  check.positive("embedding_size", embedding_size);
  if (hidden_sizes.empty())
    throw_config_value(where, "hidden_sizes", "[]", "a size for each stage");
  if (depths.size() != hidden_sizes.size()) {
    throw_config_value(where, "depths", str(depths.size(), " numbers"),
                       str(hidden_sizes.size(), ", as hidden_sizes has"));
  }
  for (const std::int64_t size : hidden_sizes) check.positive("hidden_sizes", size);
  for (const std::int64_t depth : depths) {
    if (depth < 1 || depth > 10000)
      throw_config_value(where, "depths", std::to_string(depth), "1 to 10000");
  }
  if (layer_type != "basic" && layer_type != "bottleneck")
    throw_config_value(where, "layer_type", layer_type, "basic or bottleneck");
  for (const std::int64_t size : hidden_sizes) {
    if (layer_type == "bottleneck" && size < 4)
      throw_config_value(where, "hidden_sizes", std::to_string(size),
                         "4 or more for bottleneck layers");
  }
  check.activation("hidden_act", hidden_act);
  check.head(*this);
}

}  // namespace hasten
