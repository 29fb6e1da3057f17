#include "search/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/append_whole.h"
#include "base/json_line.h"
#include "base/strict_json.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/log.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

[[noreturn]] void throw_journal_io(const char* code, const std::string& what,
                                   const std::filesystem::path& path) {
  throw IoError(code, {.what = what + " " + path.string(), .got = std::strerror(errno)});
}

bool is_trial_record(const TrialJson& json) {
  return json.is_object() && (json.contains("trial") || json.contains("search"));
}

// Returns the value in a message, shortened if it is long.
std::string value_for_message(const TrialJson& value) {
  std::string text = value.is_string() ? value.get<std::string>() : json_line(value);
  constexpr std::size_t kMaxLength = 300;
  if (text.size() > kMaxLength) text = text.substr(0, kMaxLength) + "...";
  return "'" + text + "'";
}

}  // namespace

SearchJournal::SearchJournal(const std::filesystem::path& folder, const TrialJson& description)
    : path_(folder / "journal.jsonl") {
  make_directories(folder);
  open();
  read(description);
  if (lines_ == 0) write({{"search", description}});
}

void SearchJournal::open() {
  file_ = Descriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (file_.get() < 0) throw_journal_io("io.open", "cannot open", path_);
  sync_directory(path_.parent_path());  // The file may be new.
  if (flock(file_.get(), LOCK_EX | LOCK_NB) == 0) return;
  if (errno != EWOULDBLOCK) throw_journal_io("io.open", "cannot lock", path_);
  throw IoError("search.in-use", {.what = path_.string() + ": another search uses it",
                                  .hint = "wait until that search has ended, or name another "
                                          "folder"});
}

void SearchJournal::read(const TrialJson& description) {
  const std::string text = read_file(path_);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end == text.npos ? end : end - begin);
    if (end == text.npos && !complete_last_line(line, begin)) return;
    ++lines_;
    read_line(line, description);
    begin += line.size() + 1;
  }
}

// A crash can leave only a part of the last line, or all of it except the newline. In the latter
// case the trial has ended, so it must not run again.
bool SearchJournal::complete_last_line(const std::string& line, std::size_t begin) {
  const auto json = parse_json_or_discard<TrialJson>(line);
  if (is_trial_record(json)) {
    write_bytes("\n");
    return true;
  }
  if (ftruncate(file_.get(), static_cast<off_t>(begin)) != 0)
    throw_journal_io("io.write", "cannot shorten", path_);
  log_line(str("hasten: warning: ", path_.string(), ':', lines_ + 1, ": the last line is ",
               "half-written (", line.size(), " bytes) and was removed",
               lines_ > 0 ? ". Its trial runs again." : ""));
  return false;
}

void SearchJournal::read_line(const std::string& line, const TrialJson& description) {
  const auto json = parse_json_or_discard<TrialJson>(line);
  const std::string where = str(path_.string(), ':', lines_);
  try {
    if (!is_trial_record(json) || json.contains("search") != (lines_ == 1))
      throw TrialJson::other_error::create(501, "another record", &json);
    if (lines_ == 1) return check_description(json["search"], description);
    entries_.push_back({trial_in(json), json.at("parameters"), lines_});
  } catch (const TrialJson::exception&) {
    throw DataError("search.journal",
                    {.what = where,
                     .got = value_for_message(line),
                     .expected = lines_ == 1 ? "the description of a search" : "a trial",
                     .hint = "restore the file, or begin a new search in another folder"});
  }
}

void SearchJournal::check_description(const TrialJson& found, const TrialJson& description) const {
  for (const auto& [key, value] : description.items()) {
    const TrialJson before = found.contains(key) ? found[key] : TrialJson();
    if (before == value) continue;
    throw ConfigError("search.other-search",
                      {.what = path_.string() + ": " + key,
                       .got = value_for_message(value),
                       .expected = value_for_message(before) + ", as when the search began",
                       .hint = "continue it with the same options, or name another folder"});
  }
}

std::string SearchJournal::place(const JournalEntry& entry) const {
  return str(path_.string(), ':', entry.line);
}

void SearchJournal::append(const FinishedTrial& trial) { write(trial_json(trial)); }

void SearchJournal::write(const TrialJson& json) {
  write_bytes(json_line(json) + "\n");
  ++lines_;
}

// Another thread may append a line after this one, so a part of a line must not remain.
void SearchJournal::write_bytes(const std::string& bytes) {
  if (!append_whole(file_.get(), bytes, path_)) throw_journal_io("io.write", "cannot write", path_);
  if (fsync(file_.get()) != 0) throw_journal_io("io.sync", "cannot sync", path_);
}

}  // namespace hasten
