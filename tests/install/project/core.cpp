// Links the part without tensors: no LibTorch on the include path, none loaded.
#include <hasten/base/text.h>
#include <hasten/options/training_arguments.h>
#include <cstdio>

#if __has_include(<torch/torch.h>)
#error "hasten::core must not bring LibTorch's headers"
#endif

int main() { std::printf("%s\n", hasten::human_bytes(14'949'000'000).c_str()); }
