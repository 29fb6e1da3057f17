// Links only the library without tensors. LibTorch is neither on the include path nor loaded.
#include <hasten/base/text.h>
#include <hasten/options/training_arguments.h>
#include <cstdio>

#if __has_include(<torch/torch.h>)
#error "hasten::core must not add LibTorch's headers"
#endif

int main() { std::printf("%s\n", hasten::human_bytes(14'949'000'000).c_str()); }
