// File: cli/core_commands.h
// The commands that `hasten` runs itself, without hasten-torch, each in a separate file.
#pragma once

namespace hasten::cli {

int launch(int argc, char** argv);
int configure(int argc, char** argv);    // hasten config
int environment(int argc, char** argv);  // hasten env
int plot(int argc, char** argv);
int search(int argc, char** argv);
int test(int argc, char** argv);
int verify(int argc, char** argv);
int tpu_config(int argc, char** argv);

}  // namespace hasten::cli
