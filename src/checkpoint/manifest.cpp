#include "hasten/checkpoint/manifest.h"

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/file_calls.h"
#include "base/file_checksum.h"
#include "base/sha256.h"
#include "base/written_files.h"
#include "checkpoint/tensor_records.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kChecksumKey = "xxh3_128";
constexpr const char* kUseAnotherHint =
    "use another checkpoint; resume_from_checkpoint true takes the newest one that is whole";

std::string text_of_json(const Json& json) { return json.dump(2) + "\n"; }

// The names of all files below the folder, relative to it, except the manifest and unfinished ones.
std::vector<std::string> file_names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto it = fs::recursive_directory_iterator(folder, error); !error && it != fs::end(it);
       it.increment(error)) {
    std::error_code unknown;  // a symbolic link to itself has no type
    if (!it->is_regular_file(unknown) || is_partial(it->path())) continue;
    const std::string name = it->path().lexically_relative(folder).generic_string();
    if (name != kManifestFile) names.push_back(name);
  }
  if (error) {
    throw IoError("io.open",
                  {.what = "cannot list the folder " + folder.string(), .got = error.message()});
  }
  return names;
}

[[noreturn]] void throw_bad_manifest(const fs::path& folder, std::string got) {
  throw DataError("checkpoint.manifest", {.what = (folder / kManifestFile).string(),
                                          .got = std::move(got),
                                          .expected = "the manifest of a complete checkpoint",
                                          .hint = kUseAnotherHint});
}

// Returns the manifest without its checksum. The file must be exactly the text that hasten writes
// for its content, so every changed byte is detected.
Json read_manifest(const fs::path& folder) {
  const fs::path path = folder / kManifestFile;
  if (!path_exists(path)) throw_bad_manifest(folder, "no such file");
  std::error_code unknown;
  if (fs::is_directory(path, unknown)) throw_bad_manifest(folder, "a folder");
  const std::string text = read_file(path);
  // A manifest has six levels. The limit bounds the recursion when it is written again. Sizes are
  // whole numbers; a number that does not fit into 64 bits would be parsed as a float.
  const auto check = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > 6) throw_bad_manifest(folder, "more than six levels of JSON");
    if (event == Json::parse_event_t::value && value.is_number_float())
      throw_bad_manifest(folder, "a number that is not an integer of 64 bits");
    return true;
  };
  Json json = Json::parse(text, check, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object())
    throw_bad_manifest(folder, "text that is not a JSON object");
  if (text_of_json(json) != text) throw_bad_manifest(folder, "a text that hasten does not write");
  const auto sum = json.find("manifest_sha256");
  if (sum == json.end() || !sum->is_string()) throw_bad_manifest(folder, "no manifest_sha256");
  const std::string expected = sum->get<std::string>();
  json.erase("manifest_sha256");
  if (sha256_of_text(text_of_json(json)) != expected)
    throw_bad_manifest(folder, "content that differs from its checksum");
  return json;
}

void check_version(const fs::path& folder, const Json& manifest) {
  const auto version = manifest.find("version");
  if (version == manifest.end() || !version->is_number_unsigned())
    throw_bad_manifest(folder, "no version");
  const auto number = version->get<std::uint64_t>();
  if (number == 0) throw_bad_manifest(folder, "version 0");
  if (number <= std::uint64_t{kCheckpointVersion}) return;
  throw DataError("checkpoint.newer-version",
                  {.what = (folder / kManifestFile).string(),
                   .got = str("version ", number),
                   .expected = str("at most ", kCheckpointVersion, ", the version of this release"),
                   .hint = "use the release of hasten that has written the checkpoint, or a later "
                           "one"});
}

// The entry of a file in a manifest. A safetensors file has records of its tensors.
struct FileRecord {
  FileChecksum checksum;
  TensorRecords tensors;
};

// Throws unless the file is the one that the manifest describes.
void verify_file(const fs::path& path, const FileRecord& expected) {
  // A link to itself stays unreadable, unlike a file for which the permission is missing.
  std::error_code error;
  const bool exists = fs::exists(path, error);
  if (!exists && (!error || error == std::errc::too_many_symbolic_link_levels)) {
    throw DataError("checkpoint.missing-file", {.what = path.string(),
                                                .got = "no such file",
                                                .expected = "a file of the checkpoint",
                                                .hint = kUseAnotherHint});
  }
  const auto size = fs::file_size(path, error);
  const auto throw_damaged = [&](const std::string& part, std::string got, std::string wanted) {
    throw DataError("checkpoint.damaged",
                    {.what = path.string() + (part.empty() ? "" : ", " + part),
                     .got = std::move(got),
                     .expected = std::move(wanted),
                     .hint = kUseAnotherHint});
  };
  const FileChecksum& wanted = expected.checksum;
  // The system refuses to read a folder, but to try again does not help.
  std::error_code unknown;
  if (fs::is_directory(path, unknown)) throw_damaged("", "a folder", "a file");
  if (!error && size != wanted.bytes) {
    throw_damaged(truncated_tensor(size, expected.tensors), str(size, " bytes"),
                  str(wanted.bytes, " bytes"));
  }
  const FileChecksum found = checksum_of_file(path, wanted.algorithm);
  if (found == wanted) return;
  const std::string name = str(name_of(wanted.algorithm), ' ');
  throw_damaged(damaged_part(path, expected.tensors), name + found.digits, name + wanted.digits);
}

// Manifests of version 1 and 2 have SHA-256.
FileChecksum checksum_of_json(const Json& entry) {
  const bool is_old = !entry.contains(kChecksumKey);
  return {.bytes = entry.at("bytes").get<std::uint64_t>(),
          .algorithm = is_old ? ChecksumAlgorithm::sha256 : ChecksumAlgorithm::xxh3,
          .digits = entry.at(is_old ? "sha256" : kChecksumKey).get<std::string>()};
}

std::map<std::string, FileRecord> files_of(const fs::path& folder, const Json& manifest) {
  std::map<std::string, FileRecord> files;
  try {
    for (const auto& [name, entry] : manifest.at("files").items()) {
      const fs::path path = name;
      const bool below = !name.empty() && path.is_relative() && path.lexically_normal() == path &&
                         *path.begin() != "..";
      if (!below) throw_bad_manifest(folder, "a file outside of the folder: " + name);
      files[name].checksum = checksum_of_json(entry);
      if (!entry.contains("tensors")) continue;
      files[name].tensors = records_of_json(entry.at("tensors"));
      for (const auto& [tensor, record] : files[name].tensors) {
        if (!is_valid(record))
          throw_bad_manifest(folder, str("an impossible tensor ", tensor, " of ", name));
      }
    }
  } catch (const Json::exception& error) {
    throw_bad_manifest(folder, error.what());
  }
  return files;
}

// Returns the records of a file in the folder, or none if the file is not valid, for example
// because a hook has written something else under its name.
TensorRecords records_if_valid(const fs::path& file,
                               const std::map<std::string, TensorSlice>& slices,
                               const std::map<std::string, std::uint32_t>& written) {
  try {
    return tensor_records(file, slices, written);
  } catch (const DataError&) {
    return {};
  }
}

}  // namespace

void write_manifest(const fs::path& folder, const TensorSlices& slices) {
  Json files = Json::object();
  for (const std::string& name : file_names(folder)) {
    // The files of hooks and of other processes are read back.
    const auto written = written_file(folder / name);
    const FileChecksum checksum = written ? written->checksum : checksum_of_file(folder / name);
    files[name] = {{"bytes", checksum.bytes}, {kChecksumKey, checksum.digits}};
    if (!ends_with(name, ".safetensors")) continue;
    const auto own = slices.find(name);
    const TensorRecords tensors =
        records_if_valid(folder / name, own == slices.end() ? decltype(own->second){} : own->second,
                         written ? written->parts : decltype(written->parts){});
    if (!tensors.empty()) files[name]["tensors"] = json_of(tensors);
  }
  Json manifest = {{"files", std::move(files)}, {"version", kCheckpointVersion}};
  manifest["manifest_sha256"] = sha256_of_text(text_of_json(manifest));
  write_file_atomically(folder / kManifestFile, text_of_json(manifest));
}

void verify_checkpoint(const fs::path& folder) {
  const Json manifest = read_manifest(folder);
  check_version(folder, manifest);
  const auto files = files_of(folder, manifest);
  for (const auto& [name, record] : files) verify_file(folder / name, record);
  for (const std::string& name : file_names(folder)) {
    // Hidden files are not tensors of hasten. Other systems add such files to copied folders.
    const bool is_hidden = fs::path(name).filename().native().starts_with('.');
    if (files.contains(name) || is_hidden || !ends_with(name, ".safetensors")) continue;
    throw DataError("checkpoint.damaged", {.what = (folder / name).string(),
                                           .got = "a file that the manifest does not list",
                                           .expected = "only tensors of this checkpoint",
                                           .hint = "move the file to another folder"});
  }
}

std::map<std::string, TensorRecords> records_of_checkpoint(const fs::path& folder) {
  std::map<std::string, TensorRecords> records;
  for (auto& [name, record] : files_of(folder, read_manifest(folder)))
    records[name] = std::move(record.tensors);
  return records;
}

}  // namespace hasten
