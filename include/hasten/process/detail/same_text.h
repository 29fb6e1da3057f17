// File: hasten/process/detail/same_text.h
// Reports processes that are about to do different things, before they wait for each other forever.
//
//   check_same_text("batches of 8 rows", group,
//                   {.code = "my-program.batches",
//                    .what = "the batches",
//                    .hint = "pass the same option in every process"});
//
// Processes compare fingerprints, and exchange the texts only if these differ. Thread rule: the
// same as for the group's collectives.
#pragma once

#include <string>

#include "hasten/base/detail/export.h"
#include "hasten/process/group.h"

namespace hasten {

// The text of an error about texts that differ.
struct TextCheck {
  const char* code;  // the code of the UsageError
  std::string what;  // the subject, such as "the loader passed to prepare()"
  std::string hint;
};

// Throws UsageError `check.code` in every process unless the text is the same in all of them. The
// error names the first rank with a text that differs from rank 0's, and the first line that
// differs ("no further line" if a text has ended). A collective.
HASTEN_API void check_same_text(const std::string& text, const Group& group,
                                const TextCheck& check);

}  // namespace hasten
