#include "hasten/machine/model_folder.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>

#include "base/file_calls.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "machine/home_folder.h"
#include "options/variable_of.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMainRevision = "main";
constexpr std::string_view kModelPrefix = "models--";

struct HubModel {
  std::string organization, name, revision;

  std::string id() const { return organization + "/" + name; }
  std::string command() const {
    return "hf download " + id() + (revision == kMainRevision ? "" : " --revision " + revision);
  }
};

// True if the Hub accepts the word as the name of an organization or a model.
bool is_hub_name(const std::string& word) {
  const auto is_word_character = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
  return !word.empty() && word.size() <= 96 &&
         std::all_of(word.begin(), word.end(),
                     [&](char c) { return is_word_character(c) || c == '-' || c == '.'; }) &&
         is_word_character(word.front()) && is_word_character(word.back()) &&
         word.find("--") == std::string::npos && word.find("..") == std::string::npos &&
         !ends_with(word, ".git");
}

std::optional<HubModel> parse_hub_model(const std::string& what) {
  const std::size_t at = what.find('@');
  const std::vector<std::string> words = split(what.substr(0, at), '/');
  if (words.size() != 2 || !is_hub_name(words[0]) || !is_hub_name(words[1])) return std::nullopt;
  HubModel model{words[0], words[1], kMainRevision};
  if (at != std::string::npos) model.revision = what.substr(at + 1);
  // The revision is a path below refs.
  for (const std::string& part : split(model.revision, '/'))
    if (part.empty() || part == "." || part == "..") return std::nullopt;
  return model;
}

// Replaces $NAME and ${NAME} with the values of variables that are set, like Python's expandvars.
std::string expand_variables(const config::Environment& environment, const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const bool braces = text.compare(i, 2, "${") == 0;
    const std::size_t begin = i + (braces ? 2 : 1);
    std::size_t end = begin;
    while (end < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_'))
      ++end;
    const auto variable = environment.find(text.substr(std::min(begin, text.size()), end - begin));
    const bool closed = !braces || (end < text.size() && text[end] == '}');
    if (text[i] != '$' || !closed || variable == environment.end()) {
      out += text[i++];
      continue;
    }
    out += variable->second;
    i = end + (braces ? 1 : 0);
  }
  return out;
}

// Returns the folder of the cache, or an empty string if no variable says where it is.
std::string hub_cache(const config::Environment& environment) {
  std::string path;
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (path.empty()) path = config::variable_of(environment, name);
  if (path.empty()) {
    path = config::home_folder(environment, "HF_HOME", "huggingface");
    if (!path.empty()) path += "/hub";
  }
  return expand_variables(environment, config::expand_home(environment, path));
}

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// Returns the commit that the cache has recorded for a revision, or an empty string.
std::string recorded_commit(const fs::path& model, const std::string& revision) {
  std::error_code error;
  const fs::path ref = model / "refs" / revision;
  return fs::is_regular_file(ref, error) ? std::string(trim(read_file(ref))) : "";
}

[[noreturn]] void throw_not_cached(const HubModel& model, const std::string& got) {
  throw IoError("models.not-cached",
                {.what = "model " + model.id(),
                 .got = got,
                 .expected = "a folder, or a model in the Hugging Face cache",
                 .hint = "hasten downloads nothing: run `" + model.command() + "` first"});
}

}  // namespace

std::string model_folder(const std::string& what, const config::Environment& environment) {
  if (path_exists(what)) return what;
  const std::optional<HubModel> model = parse_hub_model(what);
  if (!model) return what;
  const std::string cache = hub_cache(environment);
  if (cache.empty())
    throw_not_cached(*model, "no such folder, and none of HF_HUB_CACHE, HF_HOME and HOME is set");
  const fs::path folder =
      fs::path(cache) / str(kModelPrefix, model->organization, "--", model->name);
  if (!is_folder(folder)) throw_not_cached(*model, "no such folder, and no such model in " + cache);
  const std::string commit = recorded_commit(folder, model->revision);
  // A revision without a record may be a commit itself.
  const fs::path snapshot = folder / "snapshots" / (commit.empty() ? model->revision : commit);
  if (is_folder(snapshot)) return snapshot.string();
  throw_not_cached(
      *model, commit.empty()
                  ? str("no revision ", model->revision, " of it in ", cache)
                  : str("no files of revision ", model->revision, " (", commit, ") in ", cache));
}

std::string download_command(const fs::path& folder) {
  const fs::path model = folder.parent_path().parent_path();
  const std::string name = model.filename().string();
  const std::size_t separator = name.find("--", kModelPrefix.size());
  if (folder.parent_path().filename() != "snapshots" || !starts_with(name, kModelPrefix) ||
      separator == std::string::npos)
    return "";
  const std::string commit = folder.filename().string();
  return HubModel{
      .organization = name.substr(kModelPrefix.size(), separator - kModelPrefix.size()),
      .name = name.substr(separator + 2),
      .revision = recorded_commit(model, kMainRevision) == commit ? kMainRevision : commit}
      .command();
}

}  // namespace hasten
