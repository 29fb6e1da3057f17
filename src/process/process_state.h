// File: process/process_state.h (internal)
#pragma once

#include <sys/types.h>

#include <string>

namespace hasten {

// The same text in processes that see each other, so that the number of one means the same process
// to the other: of one running kernel, and of one of its containers.
std::string processes_seen_here();

// What the system says of a process: 'R', 'S', 'T' and so on, as in proc(5); 'Z' or 'X' where it
// has ended, though nobody may have waited for it; 0 where there is none.
char process_state(pid_t process);

inline bool has_ended(char state) { return state == 0 || state == 'Z' || state == 'X'; }

}  // namespace hasten
