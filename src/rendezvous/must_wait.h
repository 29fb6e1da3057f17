// File: rendezvous/must_wait.h (internal)
#pragma once

#include <cerrno>

namespace hasten::rendezvous {

// Returns whether a failed write may succeed later: the socket is full, or the system lacks memory
// for it.
inline bool must_wait(int error) { return error == EAGAIN || error == ENOBUFS || error == ENOMEM; }

}  // namespace hasten::rendezvous
