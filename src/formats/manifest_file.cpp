#include "formats/manifest_file.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/file_calls.h"
#include "base/regular_file.h"
#include "base/sha256.h"
#include "base/strict_json.h"
#include "base/written_files.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;
using ManifestJson = nlohmann::json;

constexpr const char* kChecksumKey = "xxh3_128";

constexpr std::size_t kMaxDepth = 6;  // of the lists and objects in a manifest

bool has_float(const ManifestJson& json) {
  return json.is_number_float() ||
         (json.is_structured() && std::any_of(json.begin(), json.end(), has_float));
}

std::string text_of_manifest(const ManifestJson& json) { return json.dump(2) + "\n"; }

// Reads the manifest of a folder.
class ManifestReader {
 public:
  ManifestReader(const fs::path& folder, const ManifestKind& kind)
      : path_(folder / kind.file), kind_(kind) {}

  FileRecords records() const {
    const ManifestJson manifest = checked_json();
    check_version(manifest);
    FileRecords files;
    try {
      for (const auto& [name, entry] : manifest.at("files").items())
        files[name] = record_of(name, entry);
    } catch (const ManifestJson::exception& error) {
      fail(error.what());
    }
    return files;
  }

 private:
  [[noreturn]] void fail(std::string got) const {
    throw DataError(kind_.bad_manifest, {.what = path_.string(),
                                         .got = std::move(got),
                                         .expected = str("the manifest of ", kind_.description),
                                         .hint = kind_.hint});
  }

  // Returns the manifest without its checksum. The file must be exactly the text that hasten writes
  // for its content, so every changed byte is detected.
  ManifestJson checked_json() const {
    if (!path_exists(path_)) fail("no such file");
    if (const char* const other = kind_unless_regular(path_)) fail(other);
    const std::string text = read_file(path_);
    ManifestJson json;
    try {  // Equal keys are found by comparing the texts.
      json = parse_strict_json(text, {.max_depth = kMaxDepth, .unique_keys = false});
    } catch (const JsonError& error) {
      fail(error.what());
    }
    if (!json.is_object()) fail("text that is not a JSON object");
    // Sizes are whole numbers; a number that does not fit into 64 bits is parsed as a float.
    if (has_float(json)) fail("a number that is not an integer of 64 bits");
    if (text_of_manifest(json) != text) fail("a text that hasten does not write");
    const auto sum = json.find("manifest_sha256");
    if (sum == json.end() || !sum->is_string()) fail("no manifest_sha256");
    const std::string expected = sum->get<std::string>();
    json.erase("manifest_sha256");
    if (sha256_of_text(text_of_manifest(json)) != expected)
      fail("content that differs from its checksum");
    return json;
  }

  void check_version(const ManifestJson& manifest) const {
    const auto version = manifest.find("version");
    if (version == manifest.end() || !version->is_number_unsigned()) fail("no version");
    const auto number = version->get<std::uint64_t>();
    if (number == 0) fail("version 0");
    if (number <= std::uint64_t{kManifestVersion}) return;
    throw DataError(kind_.newer_version,
                    {.what = path_.string(),
                     .got = str("version ", number),
                     .expected = str("at most ", kManifestVersion, ", the version of this release"),
                     .hint = "use the release of hasten that has written the files, or a later "
                             "one"});
  }

  FileRecord record_of(const std::string& name, const ManifestJson& entry) const {
    const fs::path path = name;
    const bool below = !name.empty() && path.is_relative() && path.lexically_normal() == path &&
                       *path.begin() != "..";
    if (!below) fail("a file outside of the folder: " + name);
    // Manifests of version 1 and 2 have SHA-256.
    const bool is_old = !entry.contains(kChecksumKey);
    FileRecord record{
        .checksum = {.bytes = entry.at("bytes").get<std::uint64_t>(),
                     .algorithm = is_old ? ChecksumAlgorithm::sha256 : ChecksumAlgorithm::xxh3,
                     .digits = entry.at(is_old ? "sha256" : kChecksumKey).get<std::string>()},
        .tensors = {}};
    if (!entry.contains("tensors")) return record;
    record.tensors = records_of_json(entry.at("tensors"));
    for (const auto& [tensor, of_tensor] : record.tensors) {
      if (!is_valid(of_tensor)) fail(str("an impossible tensor ", tensor, " of ", name));
    }
    return record;
  }

  fs::path path_;
  const ManifestKind& kind_;
};

}  // namespace

FileRecord record_of_file(const fs::path& file, const std::map<std::string, TensorSlice>& slices) {
  const auto written = written_file(file);
  FileRecord record{.checksum = written ? written->checksum : checksum_of_file(file),
                    .tensors = {}};
  if (file.extension() != ".safetensors") return record;
  try {
    record.tensors =
        tensor_records(file, slices, written ? written->parts : decltype(written->parts){});
  } catch (const DataError&) {  // a hook has written something else under such a name
  }
  return record;
}

void write_file_records(const fs::path& folder, const ManifestKind& kind,
                        const FileRecords& records) {
  ManifestJson files = ManifestJson::object();
  for (const auto& [name, record] : records) {
    files[name] = {{"bytes", record.checksum.bytes}, {kChecksumKey, record.checksum.digits}};
    if (!record.tensors.empty()) files[name]["tensors"] = json_of(record.tensors);
  }
  ManifestJson manifest = {{"files", std::move(files)}, {"version", kManifestVersion}};
  manifest["manifest_sha256"] = sha256_of_text(text_of_manifest(manifest));
  write_file_atomically(folder / kind.file, text_of_manifest(manifest));
}

FileRecords read_file_records(const fs::path& folder, const ManifestKind& kind) {
  return ManifestReader(folder, kind).records();
}

void verify_file(const fs::path& file, const FileRecord& record, const ManifestKind& kind) {
  // A link to itself stays unreadable, unlike a file for which the permission is missing.
  std::error_code error;
  const bool exists = fs::exists(file, error);
  if (!exists && (!error || error == std::errc::too_many_symbolic_link_levels)) {
    throw DataError(kind.missing_file, {.what = file.string(),
                                        .got = "no such file",
                                        .expected = str("a file of ", kind.description),
                                        .hint = kind.hint});
  }
  const auto size = fs::file_size(file, error);
  const auto throw_damaged = [&](const std::string& part, std::string got, std::string wanted) {
    throw DataError(kind.damaged, {.what = file.string() + (part.empty() ? "" : ", " + part),
                                   .got = std::move(got),
                                   .expected = std::move(wanted),
                                   .hint = kind.hint});
  };
  const FileChecksum& wanted = record.checksum;
  // The system refuses to read a folder, but to try again does not help. To open a pipe would wait
  // for a writer.
  if (const char* const other = kind_unless_regular(file))
    throw_damaged("", other, "a regular file");
  if (!error && size != wanted.bytes) {
    throw_damaged(truncated_tensor(size, record.tensors), str(size, " bytes"),
                  str(wanted.bytes, " bytes"));
  }
  const FileChecksum found = checksum_of_file(file, wanted.algorithm);
  if (found == wanted) return;
  const std::string name = str(name_of(wanted.algorithm), ' ');
  throw_damaged(damaged_part(file, record.tensors), name + found.digits, name + wanted.digits);
}

}  // namespace hasten
