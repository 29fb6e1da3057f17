// File: process/process_state.h (internal)
// Which process one is, and whether it has ended, for ranks that cannot wait for each other as for
// children.
//
//   if (has_ended(identity)) ...         // told by the other process as own_process()
//
// Thread rule: any thread. Nothing throws but for lack of memory.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace hasten {

// The same text in processes that see each other, so that the number of one means the same process
// to the other: of one running kernel, and of one of its containers.
std::string processes_seen_here();

// The system gives a number again after its process has ended, so it is not enough.
struct ProcessIdentity {
  std::int64_t number = 0;
  std::uint64_t started = 0;  // in clock ticks since the machine's start

  static ProcessIdentity own();
};

// What the system says of a process: 'R', 'S', 'T' and so on, as in proc(5); 'Z' where it has
// ended, though nobody may have waited for it; 0 where there is none, or another one of the same
// number. A process whose main thread alone has ended goes on.
char process_state(const ProcessIdentity& process);

inline bool has_ended(char state) { return state == 0 || state == 'Z' || state == 'X'; }
inline bool has_ended(const ProcessIdentity& process) { return has_ended(process_state(process)); }

}  // namespace hasten
