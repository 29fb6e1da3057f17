// The manifest of a checkpoint: every changed bit, every truncation and every missing file is
// found, and the error names the file.
#include "hasten/checkpoint/manifest.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/file_checksum.h"
#include "base/sha256.h"
#include "formats/manifest_file.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/checkpoint/checkpoint_folders.h"
#include "hasten/checkpoint/merge_weights.h"
#include "hasten/formats/safetensors.h"
#include "hasten/formats/weights.h"
#include "processor_time.h"
#include "unit/change_byte.h"
#include "unit/code_of.h"

namespace checkpoint_manifest_test {

using namespace hasten;
namespace fs = std::filesystem;

namespace {

void overwrite(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

// A folder with files of several sizes. One of them is in a subfolder.
struct SavedFolder {
  SavedFolder() {
    std::mt19937_64 engine(3);
    fs::create_directory(path() / "hooks");
    for (const auto& [name, size] :
         std::vector<std::pair<std::string, std::size_t>>{{"model.safetensors", 20'000},
                                                          {"state.json", 700},
                                                          {"hooks/own.txt", 1},
                                                          {"empty", 0}}) {
      std::string bytes(size, '\0');
      for (char& byte : bytes) byte = static_cast<char>(engine());
      overwrite(path() / name, bytes);
      names.push_back(name);
    }
    write_manifest(path());
    names.push_back(kManifestFile);
  }
  const fs::path& path() const { return folder.path(); }

  TemporaryDirectory folder;
  std::vector<std::string> names;
};

// Returns the message of the error that the verification throws, or an empty string.
std::string verification_error(const fs::path& folder) {
  try {
    verify_checkpoint(folder);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("manifest: the checksums are those of the bytes in memory, not of what is read back") {
  const TemporaryDirectory folder;
  const at::Tensor weight = at::arange(600'000, at::kFloat), bias = at::arange(7, at::kFloat);
  const fs::path target = folder.path() / "checkpoint-1";
  for (const char* const changed : {"nothing", "weights", "text", "header"}) {
    const std::string name = changed;
    CAPTURE(name);
    fs::remove_all(target);
    {
      CheckpointSave save(target);
      const fs::path weights = save.path() / "model.safetensors", text = save.path() / "state.json";
      save_safetensors(weights, {{"bias", bias}, {"empty", at::empty(0)}, {"weight", weight}});
      write_file_atomically(text, "{}");
      if (name == "weights") change_byte_unnoticed(weights, fs::file_size(weights) - 1);
      if (name == "header") change_byte_unnoticed(weights, 4);
      if (name == "text") change_byte_unnoticed(text, 0);
      save.commit();
    }
    const std::string error = verification_error(target);
    CHECK(error.empty() == (name == "nothing"));
    if (name == "weights") CHECK(error.find("tensor \"weight\"") != std::string::npos);
    if (name == "text") CHECK(error.find("state.json") != std::string::npos);
  }
}

TEST_CASE("manifest: the checksums of shards are those of the bytes in memory") {
  const TemporaryDirectory folder;
  const fs::path target = folder.path() / "checkpoint-1";
  {
    CheckpointSave save(target);
    save_weights(save.path(), {{"a", at::ones(100)}, {"b", at::ones(100)}},
                 {.max_shard_size = 500});
    change_byte_unnoticed(save.path() / "model-00002-of-00002.safetensors", 200);
    save.commit();
  }
  CHECK(verification_error(target).find("model-00002-of-00002.safetensors") != std::string::npos);
}

TEST_CASE("manifest: an object of an earlier save does not change the checksums of the next one") {
  const TemporaryDirectory folder;
  const fs::path target = folder.path() / "checkpoint-1";
  auto first = std::make_unique<CheckpointSave>(target);
  first->commit();
  CheckpointSave second(target);
  first.reset();
  write_file_atomically(second.path() / "state.json", "{}");
  change_byte_unnoticed(second.path() / "state.json", 0);
  second.commit();
  CHECK(verification_error(target).find("state.json") != std::string::npos);
}

TEST_CASE("manifest: a file that a hook has written again is read back") {
  const TemporaryDirectory folder;
  const fs::path target = folder.path() / "checkpoint-1";
  CheckpointSave save(target);
  save_safetensors(save.path() / "model.safetensors", {{"bias", at::ones(7)}});
  write_file_atomically(save.path() / "state.json", "{}");
  save_safetensors(save.path() / "model.safetensors", {{"other", at::ones(9)}});
  overwrite(save.path() / "state.json", "{\"own\": 1}");
  save.commit();
  CHECK(verification_error(target).empty());
}

TEST_CASE("manifest: SHA-256 matches the examples of FIPS 180-4") {
  Sha256 empty, letters;
  CHECK(empty.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  letters.add("a");
  letters.add("bc");
  CHECK(letters.hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("manifest: XXH3-128 matches the output of xxhsum for files of every size class") {
  // The expected digits are the output of printf '' | xxhsum -H2, and so on.
  CHECK(xxh3_of_text("") == "99aa06d3014798d86001c324468d497f");
  CHECK(xxh3_of_text("abc") == "06b05ab6733a618578af5f94892f3950");
  const TemporaryDirectory folder;
  std::string text;
  for (const std::size_t size : {0, 3, 17, 200, 1000, 1 << 20, (3 << 20) + 5}) {
    text.resize(size, static_cast<char>('a' + size % 26));
    overwrite(folder.path() / "file", text);
    const FileChecksum found = checksum_of_file(folder.path() / "file");
    CHECK(found.bytes == size);
    CHECK(found.digits == xxh3_of_text(text));
  }
}

TEST_CASE("manifest: an unchanged folder is accepted, also with additional files") {
  const SavedFolder saved;
  CHECK(verification_error(saved.path()).empty());
  overwrite(saved.path() / "notes.txt", "mine");
  overwrite(saved.path() / "optimizer.pt", "another program's");
  overwrite(saved.path() / "._model.safetensors", "the attributes that a Mac keeps of a file");
  CHECK(verification_error(saved.path()).empty());
  overwrite(saved.path() / "model-2.safetensors", "");
  CHECK(verification_error(saved.path())
            .find("model-2.safetensors: got a file that the manifest does not "
                  "list") != std::string::npos);
}

TEST_CASE("manifest: 600 flipped bits are found, and the file is named") {
  const SavedFolder saved;
  std::mt19937_64 engine(4);
  int found = 0;
  for (int i = 0; i < 600; ++i) {
    const std::string& name = saved.names[engine() % saved.names.size()];
    const fs::path file = saved.path() / name;
    const std::string bytes = read_file(file);
    if (bytes.empty()) {
      overwrite(file, "x");  // an empty file has no bit to flip, so it gets an extra byte
    } else {
      std::string changed = bytes;
      changed[engine() % bytes.size()] ^= static_cast<char>(1 << engine() % 8);
      overwrite(file, changed);
    }
    const std::string text = verification_error(saved.path());
    if (text.find(file.string() + ": got ") != std::string::npos) ++found;
    overwrite(file, bytes);
  }
  CHECK(found == 600);
  CHECK(verification_error(saved.path()).empty());
}

TEST_CASE("manifest: every changed bit of the manifest itself is found") {
  const SavedFolder saved;
  const fs::path file = saved.path() / kManifestFile;
  const std::string bytes = read_file(file);
  std::size_t found = 0;
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string changed = bytes;
    changed[bit / 8] ^= static_cast<char>(1 << bit % 8);
    overwrite(file, changed);
    if (code_of([&] { verify_checkpoint(saved.path()); }) == "checkpoint.manifest") ++found;
  }
  CHECK(found == 8 * bytes.size());
}

TEST_CASE("manifest: truncation and growth are found, and the sizes are named") {
  const SavedFolder saved;
  const fs::path file = saved.path() / "model.safetensors";
  const std::string bytes = read_file(file);
  for (const std::size_t size : {0, 1, 4096, 8192, 12288, 16384, 19999, 20001}) {
    CAPTURE(size);
    std::string changed = bytes;
    changed.resize(size);
    overwrite(file, changed);
    CHECK(
        verification_error(saved.path()).find(str("got ", size, " bytes, expected 20000 bytes")) !=
        std::string::npos);
  }
  overwrite(file, bytes);
  const fs::path manifest = saved.path() / kManifestFile;
  const std::string text = read_file(manifest);
  for (std::size_t size = 0; size < text.size(); size += 7) {
    overwrite(manifest, text.substr(0, size));
    CHECK(code_of([&] { verify_checkpoint(saved.path()); }) == "checkpoint.manifest");
  }
}

TEST_CASE("manifest: a missing file is named") {
  for (const char* name : {"model.safetensors", "hooks/own.txt", "empty"}) {
    const SavedFolder saved;
    fs::remove(saved.path() / name);
    CHECK(code_of([&] { verify_checkpoint(saved.path()); }) == "checkpoint.missing-file");
    CHECK(verification_error(saved.path()).find((saved.path() / name).string()) !=
          std::string::npos);
  }
  const SavedFolder saved;
  fs::remove(saved.path() / kManifestFile);
  CHECK(verification_error(saved.path()).find("hasten_manifest.json: got no such file") !=
        std::string::npos);
}

// Writes a manifest with a valid checksum and one file entry, which consists of the given lines.
void write_entry(const fs::path& folder, const std::string& lines) {
  const std::string files = "{\n  \"files\": {\n    \"x\": {\n" + lines + "\n    }\n  },\n";
  const std::string version = "  \"version\": 3\n}\n";
  Sha256 sum;
  sum.add(files + version);
  overwrite(folder / kManifestFile,
            files + "  \"manifest_sha256\": \"" + sum.hex() + "\",\n" + version);
}

TEST_CASE("manifest: an entry that lacks a key, or has an impossible tensor, is refused") {
  const TemporaryDirectory folder;
  const auto tensor = [](const std::string& begin, const std::string& size) {
    return "      \"bytes\": 0,\n      \"tensors\": {\n        \"w\": {\n          \"bytes\": [\n"
           "            " +
           begin +
           ",\n            4\n          ],\n"
           "          \"crc32c\": \"00000000\",\n          \"shape\": [\n            " +
           size + "\n          ]\n        }\n      },\n      \"xxh3_128\": \"\"";
  };
  for (const std::string& lines :
       {std::string("      \"bytes\": 0"), std::string("      \"xxh3_128\": \"\""),
        std::string("      \"bytes\": \"0\",\n      \"xxh3_128\": \"\""), tensor("5", "1"),
        tensor("0", "-1"), tensor("0", "\"1\"")}) {
    CAPTURE(lines);
    write_entry(folder.path(), lines);
    CHECK(code_of([&] { verify_checkpoint(folder.path()); }) == "checkpoint.manifest");
    CHECK(verification_error(folder.path()).find("that hasten does not write") ==
          std::string::npos);
  }
  write_entry(folder.path(), tensor("0", "1"));
  CHECK(code_of([&] { verify_checkpoint(folder.path()); }) == "checkpoint.missing-file");
}

TEST_CASE("manifest: a slice must belong to a tensor of the file and lie inside it") {
  const TemporaryDirectory folder;
  save_safetensors(folder.path() / "model.safetensors", {{"w", at::ones({2, 3})}});
  const auto code_for = [&](const std::string& name, const TensorSlice& slice) {
    return code_of([&] {
      write_manifest(folder.path(), {{"model.safetensors", {{name, slice}}}});
    });
  };
  constexpr std::int64_t kHuge = std::int64_t{1} << 40;
  CHECK(code_for("w", {.shape = {4, 3}, .offset = {2, 0}}) == "none");
  CHECK(code_for("v", {.shape = {4, 3}, .offset = {2, 0}}) == "checkpoint.slice");
  CHECK(code_for("w", {.shape = {4, 3}, .offset = {3, 0}}) == "checkpoint.slice");
  CHECK(code_for("w", {.shape = {4, 3}, .offset = {-1, 0}}) == "checkpoint.slice");
  CHECK(code_for("w", {.shape = {4, 3}, .offset = {0}}) == "checkpoint.slice");
  CHECK(code_for("w", {.shape = {kHuge, kHuge}, .offset = {0, 0}}) == "checkpoint.slice");
}

TEST_CASE("manifest: a symbolic link to itself is not a file of a checkpoint") {
  const SavedFolder saved;
  fs::create_symlink("loop", saved.path() / "loop");
  CHECK(verification_error(saved.path()).empty());
  fs::create_symlink("loop.safetensors", saved.path() / "loop.safetensors");
  CHECK(verification_error(saved.path()).empty());
  fs::remove(saved.path() / "model.safetensors");
  fs::create_symlink("model.safetensors", saved.path() / "model.safetensors");
  CHECK(code_of([&] { verify_checkpoint(saved.path()); }) == "checkpoint.missing-file");
}

TEST_CASE("manifest: a folder in the place of a file is damage, not an error of the system") {
  for (const auto& [name, code] : std::vector<std::pair<std::string, std::string>>{
           {"state.json", "checkpoint.damaged"}, {kManifestFile, "checkpoint.manifest"}}) {
    const SavedFolder saved;
    fs::remove(saved.path() / name);
    fs::create_directory(saved.path() / name);
    CHECK(code_of([&] { verify_checkpoint(saved.path()); }) == code);
    CHECK(verification_error(saved.path()).find(name + ": got a folder") != std::string::npos);
  }
}

TEST_CASE("manifest: a pipe or a device in the place of a file is damage, and is not opened") {
  for (const auto& [name, code] :
       std::vector<std::pair<std::string, std::string>>{{"empty", "checkpoint.damaged"},
                                                        {"state.json", "checkpoint.damaged"},
                                                        {kManifestFile, "checkpoint.manifest"}}) {
    CAPTURE(name);
    const SavedFolder saved;
    const fs::path file = saved.path() / name;
    const std::string expected = name + ": got a pipe, a socket or a device";
    fs::remove(file);
    fs::create_symlink("/dev/null", file);
    // If this fails, the test ends here: to open the pipe would wait for ever.
    REQUIRE(verification_error(saved.path()).find(expected) != std::string::npos);
    fs::remove(file);
    REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
    CHECK(verification_error(saved.path()).find(expected) != std::string::npos);
    CHECK(code_of([&] { verify_checkpoint(saved.path()); }) == code);
  }
}

TEST_CASE("manifest: a symbolic link to a file counts as the file") {
  const SavedFolder saved;
  const TemporaryDirectory elsewhere;
  fs::copy_file(saved.path() / "state.json", elsewhere.path() / "state.json");
  fs::remove(saved.path() / "state.json");
  fs::create_symlink(elsewhere.path() / "state.json", saved.path() / "state.json");
  CHECK(verification_error(saved.path()).empty());
}

TEST_CASE("manifest: hidden files are not listed, so a copy without them is whole") {
  const SavedFolder saved;
  const fs::path job = saved.path() / ".hasten-job", hidden = saved.path() / ".cache";
  overwrite(job, "nightly");
  fs::create_directory(hidden);
  overwrite(hidden / "model.safetensors", "the file of another program");
  write_manifest(saved.path());
  CHECK(read_file_records(saved.path(), kCheckpointManifest).size() == saved.names.size() - 1);
  CHECK(verification_error(saved.path()).empty());
  fs::remove(job);
  fs::remove_all(hidden);
  CHECK(verification_error(saved.path()).empty());
}

TEST_CASE("manifest: a hidden file that an earlier release has listed may be missing") {
  const SavedFolder saved;
  const fs::path job = saved.path() / ".hasten-job";
  overwrite(job, "nightly");
  FileRecords records = read_file_records(saved.path(), kCheckpointManifest);
  records[".hasten-job"] = record_of_file(job);
  write_file_records(saved.path(), kCheckpointManifest, records);
  CHECK(verification_error(saved.path()).empty());
  overwrite(job, "weekly!");
  CHECK(code_of([&] { verify_checkpoint(saved.path()); }) == "checkpoint.damaged");
  fs::remove(job);
  CHECK(verification_error(saved.path()).empty());
}

TEST_CASE("manifest: a newer version is refused by its number") {
  const TemporaryDirectory folder;
  const auto write = [&](const std::string& content) {
    Sha256 digest;
    digest.add("{\n" + content + "\n}\n");
    const std::string at = "\"version\"";
    const std::string sum = "\"manifest_sha256\": \"" + digest.hex() + "\",\n  ";
    std::string whole = content;
    whole.insert(whole.find(at), sum);
    overwrite(folder.path() / kManifestFile, "{\n" + whole + "\n}\n");
  };
  write("  \"files\": {},\n  \"version\": 1");
  CHECK(verification_error(folder.path()).empty());
  write("  \"files\": {},\n  \"version\": 7");
  CHECK(code_of([&] { verify_checkpoint(folder.path()); }) == "checkpoint.newer-version");
  CHECK(verification_error(folder.path()).find("got version 7, expected at most 3") !=
        std::string::npos);
  write("  \"files\": {},\n  \"version\": 18446744073709551615");
  CHECK(code_of([&] { verify_checkpoint(folder.path()); }) == "checkpoint.newer-version");
  for (const std::string number : {"-1", "0"}) {
    CAPTURE(number);
    write(str("  \"files\": {},\n  \"version\": ", number));
    CHECK(code_of([&] { verify_checkpoint(folder.path()); }) == "checkpoint.manifest");
  }
  // The JSON parser would turn these numbers into doubles.
  for (const char* number : {"109223372036854775807", "1.5"}) {
    CAPTURE(number);
    write(str("  \"files\": {},\n  \"version\": ", number));
    CHECK(code_of([&] { verify_checkpoint(folder.path()); }) == "checkpoint.manifest");
    CHECK(verification_error(folder.path()).find("got a number that is not") != std::string::npos);
  }
  // A manifest with a wrong checksum is damaged, even if it has a newer version.
  overwrite(folder.path() / kManifestFile,
            "{\n  \"files\": {},\n  \"manifest_sha256\": \"\",\n  \"version\": 7\n}\n");
  CHECK(code_of([&] { verify_checkpoint(folder.path()); }) == "checkpoint.manifest");
  write(
      "  \"files\": {\n    \"../x\": {\n      \"bytes\": 0,\n      \"sha256\": \"\"\n    }\n  },\n"
      "  \"version\": 1");
  CHECK(verification_error(folder.path()).find("outside of the folder: ../x") != std::string::npos);
  overwrite(folder.path() / kManifestFile, std::string(200'000, '['));
  CHECK(code_of([&] { verify_checkpoint(folder.path()); }) == "checkpoint.manifest");
}

// Returns three tensors. A damaged byte of their file belongs to one of them or to the header.
TensorDict three_tensors() {
  return {{"a.weight", at::arange(60, at::kFloat).view({10, 6})},
          {"b.bias", at::arange(7, at::kLong)},
          {"c", at::arange(9, at::kByte)}};
}

TEST_CASE("manifest: a changed bit is reported with the file and the tensor") {
  const TemporaryDirectory folder;
  const fs::path file = folder.path() / "model.safetensors";
  save_safetensors(file, three_tensors());
  write_manifest(folder.path());
  const std::string bytes = read_file(file);
  const std::size_t data = bytes.size() - 60 * 4 - 7 * 8 - 9;
  // The file holds I64, then F32, then U8.
  const auto part_of = [&](std::size_t at) -> std::string {
    if (at < data) return "the header";
    if (at < data + 7 * 8) return "tensor \"b.bias\"";
    return at < data + 7 * 8 + 60 * 4 ? "tensor \"a.weight\"" : "tensor \"c\"";
  };
  std::size_t named = 0;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string changed = bytes;
    changed[at] ^= static_cast<char>(1 << at % 8);
    overwrite(file, changed);
    const std::string expected = file.string() + ", " + part_of(at) + ": got XXH3-128";
    if (verification_error(folder.path()).find(expected) != std::string::npos) ++named;
  }
  CHECK(named == bytes.size());
  overwrite(file, bytes.substr(0, data + 60));
  CHECK(verification_error(folder.path()).find(", tensor \"a.weight\": got ") != std::string::npos);
}

TEST_CASE("manifest: it describes every tensor, and version 1 is still read") {
  const TemporaryDirectory folder;
  save_safetensors(folder.path() / "model.safetensors", {{"w", at::ones({2, 3})}});
  write_manifest(folder.path());
  const std::string text = read_file(folder.path() / kManifestFile);
  for (const char* line :
       {"\"version\": 3", "\"tensors\": {", "\"w\": {", "\"crc32c\": \"", "\"shape\": ["}) {
    CAPTURE(line);
    CHECK(text.find(line) != std::string::npos);
  }
  const FileDigest digest = digest_of_file(folder.path() / "model.safetensors");
  const std::string files =
      str("{\n  \"files\": {\n    \"model.safetensors\": {\n      \"bytes\": ", digest.bytes,
          ",\n      \"sha256\": \"", digest.sha256, "\"\n    }\n  },\n");
  const std::string version = "  \"version\": 1\n}\n";
  Sha256 sum;
  sum.add(files + version);
  overwrite(folder.path() / kManifestFile,
            files + "  \"manifest_sha256\": \"" + sum.hex() + "\",\n" + version);
  CHECK(verification_error(folder.path()).empty());
  overwrite(folder.path() / "model.safetensors", "x");
  CHECK(verification_error(folder.path()).find("model.safetensors: got 1 bytes") !=
        std::string::npos);
}

TEST_CASE("manifest: slices of several files are merged, and must cover a tensor once") {
  const TemporaryDirectory folder, out;
  const at::Tensor whole = at::arange(60, at::kFloat).view({10, 6});
  const auto write = [&](std::int64_t rows) {
    const auto first = whole.narrow(0, 0, rows).contiguous();
    const auto second = whole.narrow(0, 4, 6).contiguous();
    save_safetensors(folder.path() / "model-00001-of-00002.safetensors",
                     {{"w", first}, {"b", at::ones({2})}});
    save_safetensors(folder.path() / "model-00002-of-00002.safetensors", {{"w", second}});
    write_manifest(folder.path(),
                   {{"model-00001-of-00002.safetensors", {{"w", {{10, 6}, {0, 0}}}}},
                    {"model-00002-of-00002.safetensors", {{"w", {{10, 6}, {4, 0}}}}}});
  };
  write(4);
  verify_checkpoint(folder.path());
  const TensorDict merged = merge_weights(folder.path(), out.path());
  CHECK(at::equal(merged.at("w"), whole));
  const TensorDict read = load_weights(out.path());
  CHECK(read.size() == 2);
  CHECK(at::equal(read.at("w"), whole));
  for (const std::int64_t rows : {3, 5}) {
    write(rows);
    CHECK(code_of([&] { merge_weights(folder.path(), out.path()); }) == "checkpoint.slices");
  }
  write(4);
  for (const char* target :
       {"", "merged.safetensors", "model.safetensors", "sub", "sub/x.safetensors"}) {
    CAPTURE(target);
    CHECK(code_of([&] { merge_weights(out.path(), folder.path() / target); }) ==
          "weights.merge-target");
  }
  verify_checkpoint(folder.path());
  CHECK(code_of([&] {
          write_manifest(folder.path(),
                         {{"model-00001-of-00002.safetensors", {{"w", {{10, 6}, {8, 0}}}}}});
        }) == "checkpoint.slice");
}

TEST_CASE("manifest: one of many tensors is read in time in proportion to its length") {
  const auto seconds_to_read = [](std::int64_t tensors) {
    const TemporaryDirectory folder;
    FileRecord record{.checksum = {.bytes = 0, .digits = std::string(32, '0')}, .tensors = {}};
    for (std::int64_t i = 0; i < tensors; ++i)
      record.tensors[str("layer.", i, ".weight")] = {.crc32c = "00000000", .shape = {0, 4}};
    write_file_records(folder.path(), kCheckpointManifest, {{"model.safetensors", record}});
    const double begin = processor_seconds();
    const FileRecords read = read_file_records(folder.path(), kCheckpointManifest);
    const double end = processor_seconds();
    CHECK(read.at("model.safetensors").tensors.size() == static_cast<std::size_t>(tensors));
    return end - begin;
  };
  // Twenty times the length takes 400 times the time if each tensor is compared with all others.
  CHECK(seconds_to_read(40'000) < 100 * std::max(seconds_to_read(2'000), 0.005));
}

}  // namespace checkpoint_manifest_test
