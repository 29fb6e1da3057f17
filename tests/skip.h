// A test that cannot run on this machine calls skip_test(reason) and returns. ctest then counts its
// program as skipped, unless a check of another test in it failed.
#pragma once

void skip_test(const char* reason);
