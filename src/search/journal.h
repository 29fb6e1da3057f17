// File: search/journal.h (internal)
// The file journal.jsonl of a search: a line that describes the search, and a line for each trial
// that has ended.
//
//   SearchJournal journal(folder, description);        // creates or continues it, and locks it
//   for (const JournalEntry& entry : journal.entries()) ...
//   journal.append(trial);                             // on the disk when it returns
//
// Throws what search_hyperparameters throws for its folder, and IoError "io.*". Thread rule: one
// thread at a time.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "search/trial_json.h"

namespace hasten {

struct JournalEntry {
  FinishedTrial trial;  // Without parameters.
  TrialJson parameters;
  std::size_t line = 0;  // Counts from 1.
};

class SearchJournal {
 public:
  // `description` is an object. A journal with a different description belongs to another search.
  SearchJournal(const std::filesystem::path& folder, const TrialJson& description);

  const std::vector<JournalEntry>& entries() const { return entries_; }
  std::string place(const JournalEntry& entry) const;
  void append(const FinishedTrial& trial);

 private:
  void open();
  void read(const TrialJson& description);
  void read_line(const std::string& line, const TrialJson& description);
  void check_description(const TrialJson& found, const TrialJson& description) const;
  // Adds the missing newline of the last line, or removes the line if it is incomplete. Returns
  // whether the line remains.
  bool complete_last_line(const std::string& line, std::size_t begin);
  void write(const TrialJson& json);
  void write_bytes(const std::string& bytes);

  std::filesystem::path path_;
  Descriptor file_;
  std::size_t lines_ = 0;
  std::vector<JournalEntry> entries_;
};

}  // namespace hasten
