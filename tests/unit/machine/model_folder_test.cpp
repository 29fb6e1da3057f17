// Models in the cache of the Hugging Face Hub.
#include "hasten/machine/model_folder.h"

#include <doctest/doctest.h>

#include "hasten/base/error.h"
#include "hasten/base/files.h"

namespace machine_model_folder_test {

using namespace hasten;

namespace {

namespace fs = std::filesystem;

const std::string kCommit(40, 'a'), kOther(40, 'b');

void put(const fs::path& file, const std::string& text) {
  make_directories(file.parent_path());
  write_file_atomically(file, text);
}

// A cache as huggingface_hub writes it: files in blobs, and links to them in snapshots.
void fill(const fs::path& cache) {
  const fs::path model = cache / "models--org--my-model_1.0";
  put(model / "refs/main", kCommit);
  put(model / "refs/pr/1", kOther + "\n");
  put(model / "refs/gone", std::string(40, 'c'));
  put(model / "blobs/1234", "{}");
  for (const std::string& commit : {kCommit, kOther}) {
    make_directories(model / "snapshots" / commit);
    fs::create_symlink("../../blobs/1234", model / "snapshots" / commit / "config.json");
  }
}

std::string message(const std::string& what, const config::Environment& environment) {
  try {
    return model_folder(what, environment);
  } catch (const IoError& error) {
    CHECK(error.code() == "models.not-cached");
    return error.what();
  }
}

}  // namespace

TEST_CASE("model folder: a name in the cache becomes its snapshot") {
  const TemporaryDirectory home;
  const fs::path cache = home.path() / "hub";
  fill(cache);
  const config::Environment environment = {{"HF_HUB_CACHE", cache.string()}};
  const fs::path snapshots = cache / "models--org--my-model_1.0/snapshots";
  const auto found = [&](const std::string& what) { return model_folder(what, environment); };
  CHECK(found("org/my-model_1.0") == snapshots / kCommit);
  CHECK(found("org/my-model_1.0@main") == snapshots / kCommit);
}

TEST_CASE("model folder: revisions are branches, tags and commits") {
  const TemporaryDirectory home;
  const fs::path cache = home.path() / "hub";
  fill(cache);
  const config::Environment environment = {{"HF_HUB_CACHE", cache.string()}};
  const fs::path snapshots = cache / "models--org--my-model_1.0/snapshots";
  CHECK(model_folder("org/my-model_1.0@pr/1", environment) == snapshots / kOther);
  CHECK(model_folder("org/my-model_1.0@" + kOther, environment) == snapshots / kOther);
  CHECK(message("org/my-model_1.0@v2", environment) ==
        "model org/my-model_1.0: got no revision v2 of it in " + cache.string() +
            ", expected a folder, or a model in the Hugging Face cache. Hint: hasten downloads "
            "nothing: run `hf download org/my-model_1.0 --revision v2` first");
  CHECK(message("org/my-model_1.0@gone", environment).find("no files of revision gone (ccc") !=
        std::string::npos);
  CHECK(download_command(snapshots / kCommit) == "hf download org/my-model_1.0");
  CHECK(download_command(snapshots / kOther) ==
        "hf download org/my-model_1.0 --revision " + kOther);
  CHECK(download_command(home.path()).empty());
  CHECK(download_command("folder").empty());
}

TEST_CASE("model folder: the cache is where huggingface_hub looks for it") {
  const TemporaryDirectory folder;
  const std::string home = folder.path().string();
  const auto is_found = [](const config::Environment& environment) {
    return !message("org/my-model_1.0", environment).starts_with("model ");
  };
  fill(folder.path() / ".cache/huggingface/hub");
  CHECK(is_found({{"HOME", home}}));
  CHECK(is_found({{"HOME", "/n"}, {"XDG_CACHE_HOME", home + "/.cache"}}));
  CHECK(is_found({{"HOME", home}, {"HF_HOME", "~/.cache/huggingface"}}));
  CHECK(is_found({{"HF_HOME", "/n"}, {"HUGGINGFACE_HUB_CACHE", home + "/.cache/huggingface/hub"}}));
  CHECK(is_found({{"A_1", home}, {"HF_HUB_CACHE", "$A_1/.cache/${B}huggingface/hub"}, {"B", ""}}));
  CHECK_FALSE(is_found({{"HOME", home}, {"HF_HUB_CACHE", "/n"}}));
  CHECK_FALSE(is_found({{"HF_HUB_CACHE", "$unset/${unset}/${/$"}}));
  CHECK(message("org/name", {}).find("none of HF_HUB_CACHE, HF_HOME and HOME is set") !=
        std::string::npos);
  CHECK(message("org/name", {{"HOME", "/n"}}) ==
        "model org/name: got no such folder, and no such model in /n/.cache/huggingface/hub, "
        "expected a folder, or a model in the Hugging Face cache. Hint: hasten downloads nothing: "
        "run `hf download org/name` first");
}

TEST_CASE("model folder: paths and other texts stay as they are") {
  const config::Environment environment = {{"HOME", "/n"}};
  for (const char* what : {"bert-base", "/a/b", "a/b/c", "./b", "../b", "a/", "", "a--b/c",
                           "a/b.git", "a/b@../../x", "a/b@", "-a/b"})
    CHECK(model_folder(what, environment) == what);
  // An existing folder takes precedence over a name.
  const TemporaryDirectory folder;
  make_directories(folder.path() / "org/name");
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  CHECK(model_folder("org/name", environment) == "org/name");
  fs::current_path(before);
}

}  // namespace machine_model_folder_test
