// File: process/fork/openmp.h (internal)
#pragma once

namespace hasten {

// Ends the threads of every OpenMP library in the process; the libraries start them again when they
// are needed. Call it before a fork, which would wait for these threads for ever, as it has none of
// them.
void pause_openmp();

}  // namespace hasten
