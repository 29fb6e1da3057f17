#include "hasten/base/text.h"
#include "hasten/models/vit.h"
#include "models/config_reader.h"

namespace hasten {

namespace {

// Reads one number, or a list of height and width.
void read_size(ConfigReader& reader, const char* key, const std::string& where,
               std::array<std::int64_t, 2>& to) {
  if (!reader.object().contains(key) || !reader.object().at(key).is_array()) {
    std::int64_t size = to[0];
    reader.read(key, size);
    to = {size, size};
    return;
  }
  std::vector<std::int64_t> sizes;
  reader.read(key, sizes);
  if (sizes.size() != 2)
    throw_config_value(where, key, str(sizes.size(), " numbers"),
                       "one number, or height and width");
  to = {sizes[0], sizes[1]};
}

nlohmann::json size_json(const std::array<std::int64_t, 2>& size) {
  if (size[0] == size[1]) return size[0];
  return size;
}

}  // namespace

ViTConfig ViTConfig::from_json(const std::string& text, const std::string& where) {
  ConfigReader reader(text, where);
  reader.require_model_type("vit");
  ViTConfig config;
  reader.read_encoder(config);
  read_size(reader, "image_size", where, config.image_size);
  read_size(reader, "patch_size", where, config.patch_size);
  reader.read("num_channels", config.num_channels);
  reader.read("qkv_bias", config.qkv_bias);
  reader.read_head(config);
  config.other_keys = reader.other_keys();
  config.check(where);
  return config;
}

std::string ViTConfig::to_json() const {
  nlohmann::json object = config_object("vit", *this);
  write_encoder(object, *this);
  object["image_size"] = size_json(image_size);
  object["patch_size"] = size_json(patch_size);
  object["num_channels"] = num_channels;
  object["qkv_bias"] = qkv_bias;
  return object.dump(2) + "\n";
}

void ViTConfig::check(const std::string& where) const {
  const ConfigChecks check(where);
  check.encoder(*this);
  check.positive("num_channels", num_channels);
  for (const int side : {0, 1}) {
    check.positive("image_size", image_size[side]);
    check.positive("patch_size", patch_size[side]);
    if (image_size[side] % patch_size[side] != 0) {
      throw_config_value(where, "image_size", std::to_string(image_size[side]),
                         str("a multiple of patch_size (", patch_size[side], ")"));
    }
  }
  check.head(*this);
}

}  // namespace hasten
