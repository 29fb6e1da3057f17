// File: checkpoint/hash_chain_lines.h (internal)
// Reads links that need not follow each other, such as those that a resumed run has removed from
// its hash chain.
//
//   for (const HashLink& link : intact_links("out/abandoned-hash_chain.jsonl"))
//     links.emplace(hash_of(link), &link);
//
// Throws IoError "io.*". Thread rule: any thread.
#pragma once

#include <filesystem>

#include "hasten/checkpoint/hash_chain.h"

namespace hasten {

// Returns the links of the lines that are as a run has written them, in the order of the file.
HashChain intact_links(const std::filesystem::path& file);

}  // namespace hasten
