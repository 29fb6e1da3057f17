// The manifest of a checkpoint: every changed bit, every truncation and every missing file is found,
// and named.
#include "hasten/checkpoint/manifest.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "unit/code_of.h"

namespace checkpoint_manifest_test {

using namespace hasten;
namespace fs = std::filesystem;

namespace {

void overwrite(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

// A folder with files of several sizes, one of them in a folder below it.
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

// The message of the error that the verification throws; empty if it throws nothing.
std::string complaint(const fs::path& folder) {
  try {
    verify_checkpoint(folder);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("manifest: SHA-256 is that of FIPS 180-4") {
  Sha256 empty, letters;
  CHECK(empty.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  letters.add("a");
  letters.add("bc");
  CHECK(letters.hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("manifest: a folder as it was written is accepted, with further files in it") {
  const SavedFolder saved;
  CHECK(complaint(saved.path()).empty());
  overwrite(saved.path() / "notes.txt", "mine");
  overwrite(saved.path() / "optimizer.pt", "another program's");
  CHECK(complaint(saved.path()).empty());
  overwrite(saved.path() / "model-2.safetensors", "");
  CHECK(complaint(saved.path())
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
      overwrite(file, "x");  // nothing to flip: a byte too many
    } else {
      std::string changed = bytes;
      changed[engine() % bytes.size()] ^= static_cast<char>(1 << engine() % 8);
      overwrite(file, changed);
    }
    const std::string text = complaint(saved.path());
    if (text.find(file.string() + ": got ") != std::string::npos) ++found;
    overwrite(file, bytes);
  }
  CHECK(found == 600);
  CHECK(complaint(saved.path()).empty());
}

TEST_CASE("manifest: every bit of the manifest itself counts") {
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
    CHECK(complaint(saved.path()).find(str("got ", size, " bytes, expected 20000 bytes")) !=
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
    CHECK(complaint(saved.path()).find((saved.path() / name).string()) != std::string::npos);
  }
  const SavedFolder saved;
  fs::remove(saved.path() / kManifestFile);
  CHECK(complaint(saved.path()).find("hasten_manifest.json: got no such file") !=
        std::string::npos);
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
  CHECK(complaint(folder.path()).empty());
  write("  \"files\": {},\n  \"version\": 7");
  CHECK(code_of([&] { verify_checkpoint(folder.path()); }) == "checkpoint.newer-version");
  CHECK(complaint(folder.path()).find("got version 7, expected at most 1") != std::string::npos);
  // An accident does not make a newer version.
  overwrite(folder.path() / kManifestFile,
            "{\n  \"files\": {},\n  \"manifest_sha256\": \"\",\n  \"version\": 7\n}\n");
  CHECK(code_of([&] { verify_checkpoint(folder.path()); }) == "checkpoint.manifest");
  write(
      "  \"files\": {\n    \"../x\": {\n      \"bytes\": 0,\n      \"sha256\": \"\"\n    }\n  },\n"
      "  \"version\": 1");
  CHECK(complaint(folder.path()).find("outside of the folder: ../x") != std::string::npos);
  overwrite(folder.path() / kManifestFile, std::string(200'000, '['));
  CHECK(code_of([&] { verify_checkpoint(folder.path()); }) == "checkpoint.manifest");
}

}  // namespace checkpoint_manifest_test
