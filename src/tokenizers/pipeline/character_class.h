// File: tokenizers/pipeline/character_class.h
// Reads the parts of a regular expression that stand for one character: classes and escapes.
//
//   CodeSet set = read_class(cursor, false);            // after the [ of [a-z\d]
//   const auto digits = read_set_escape(cursor, false); // after the backslash of \d
//
// Throws DataError "tokenizers.bad-pattern". Thread rule: one thread for a cursor.
#pragma once

#include <optional>

#include "tokenizers/code_sets.h"
#include "tokenizers/pipeline/pattern_cursor.h"

namespace hasten::tokenizers {

// Reads a class after its [.
CodeSet read_class(PatternCursor& cursor, bool ignores_case);
// Reads what follows the backslash of \s, \p{L} and the like. Reads nothing and returns nothing if
// it is a different escape.
std::optional<CodeSet> read_set_escape(PatternCursor& cursor, bool ignores_case);
// Reads what follows the backslash of \t, \x41, \. and the like.
char32_t read_character_escape(PatternCursor& cursor);
// Adds the other case of each letter.
CodeSet both_cases(const CodeSet& set);

}  // namespace hasten::tokenizers
