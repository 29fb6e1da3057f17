#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file_calls.h"
#include "base/strict_json.h"
#include "formats/model_files.h"
#include "formats/model_manifest.h"
#include "formats/safetensors_header.h"
#include "formats/weights_index.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/formats/weights.h"
#include "hasten/machine/model_folder.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using safetensors::quoted;

constexpr const char* kFetchAgainHint =
    "fetch the folder again: the index and the files must come from the same save";

[[noreturn]] void fail_index(const fs::path& index, const std::string& what) {
  throw DataError("weights.index", {.what = index.string() + ": " + what, .hint = kFetchAgainHint});
}

json read_index_json(const fs::path& path) {
  try {
    return read_strict_json(path);
  } catch (const JsonError& error) {
    if (!error.repeated().empty())
      fail_index(path, quoted(error.repeated().back()) + " appears twice");
    fail_index(path, error.what());
  }
}

}  // namespace

std::map<std::string, std::set<std::string>> read_weights_index(const fs::path& path) {
  const json index = read_index_json(path);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    fail_index(path, "there is no object \"weight_map\"");
  }
  std::map<std::string, std::set<std::string>> files;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    if (!file.is_string()) {
      fail_index(path, "the entry of " + quoted(tensor) + " is not a file name");
    }
    const std::string name = file.get<std::string>();
    // An index from elsewhere must not name files outside its folder.
    if (name.empty() || name.find_first_of("/\\") != std::string::npos ||
        name.find('\0') != std::string::npos || name == "." || name == "..") {
      fail_index(path, "the entry of " + quoted(tensor) + " is " + quoted(name) +
                           ", not a file name in this folder");
    }
    files[name].insert(tensor);
  }
  return files;
}

namespace {

void check_names(const fs::path& shard, const SafetensorsFile& file,
                 const std::set<std::string>& listed) {
  for (const std::string& name : listed) {
    if (!file.contains(name)) {
      throw DataError(
          "weights.missing-tensor",
          {.what = shard.string() + ": the index says that tensor " + quoted(name) + " is here",
           .got = str(file.names().size(), " other tensors"),
           .hint = kFetchAgainHint});
    }
  }
  for (const std::string& name : file.names()) {
    if (!listed.contains(name)) {
      throw DataError("weights.unlisted-tensor",
                      {.what = shard.string() + ": the index does not say that tensor " +
                               quoted(name) + " is here",
                       .hint = kFetchAgainHint});
    }
  }
}

TensorDict load_index(const fs::path& index) {
  const auto files = read_weights_index(index);
  const fs::path folder = index.parent_path();
  const std::string download = download_command(folder);
  std::vector<std::string> to_verify = {index.filename().string()};
  for (const auto& [name, listed] : files) {
    to_verify.push_back(name);
    if (path_exists(folder / name)) continue;
    throw DataError(
        "weights.missing-file",
        {.what = (folder / name).string() + ": the index lists this file, but it does not exist",
         .hint = str("the index lists ", files.size(), " files: fetch those that are missing",
                     download.empty() ? "" : ": " + download)});
  }
  verify_weights(folder, to_verify);
  TensorDict weights;
  for (const auto& [name, listed] : files) {
    const fs::path shard = folder / name;
    const SafetensorsFile file(shard);
    check_names(shard, file, listed);
    for (const std::string& tensor : listed) weights.emplace(tensor, file.tensor(tensor));
  }
  return weights;
}

// Suggests why a folder has no readable weights: most often they are in the older pickle format.
std::string hint_for_folder(const fs::path& folder) {
  std::error_code ignored;
  for (const char* pickle : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (fs::exists(folder / pickle, ignored)) {
      return std::string(pickle) +
             " is in the folder, which is a pickle: if you trust it, call hasten convert " +
             folder.string() + " NEW_FOLDER --allow_pickle";
    }
  }
  const std::string download = download_command(folder);
  if (!download.empty()) return "fetch the weights: " + download;
  std::string hint = "check the path of the folder";
  if (fs::exists(folder / "config.json", ignored))
    hint += "; to train from random weights, name " + (folder / "config.json").string();
  return hint;
}

}  // namespace

TensorDict load_weights(const fs::path& folder_or_file) {
  std::error_code ignored;
  if (fs::is_directory(folder_or_file, ignored)) {
    const fs::path single = folder_or_file / kSingleFileName;
    const fs::path index = folder_or_file / kIndexFileName;
    if (path_exists(single)) {
      verify_weights(folder_or_file, {kSingleFileName});
      return load_safetensors(single);
    }
    if (path_exists(index)) return load_index(index);
    throw DataError(
        "weights.missing-file",
        {.what = folder_or_file.string() +
                 ": there is neither model.safetensors nor model.safetensors.index.json",
         .hint = hint_for_folder(folder_or_file)});
  }
  if (folder_or_file.extension() == ".json") return load_index(folder_or_file);
  return load_safetensors(folder_or_file);
}

}  // namespace hasten
