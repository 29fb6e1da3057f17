// File: device/cuda/kernels/row_launches.h (internal)
// Launches the row kernels on a stream (a cudaStream_t) of the current GPU. nvcc compiles the
// definitions (row_kernels.cu). Each function returns null, or CUDA's text if the launch failed. A
// later CUDA call reports errors that occur while a kernel runs.
#pragma once

#include "device/cuda/kernels/row_calls.h"

namespace hasten::gpu {

const char* launch_on_stream(void* stream, const BiasGeluCall<>& call, NumberType type);
const char* launch_on_stream(void* stream, const BiasGeluBackwardCall<>& call, NumberType type);
const char* launch_on_stream(void* stream, const BiasTanhGeluCall& call, NumberType type);
const char* launch_on_stream(void* stream, const BiasTanhGeluBackwardCall& call, NumberType type);
const char* launch_on_stream(void* stream, const ColumnSumCall<>& call, NumberType type);
const char* launch_on_stream(void* stream, const DropoutCall<>& call, NumberType type);
const char* launch_on_stream(void* stream, const DropoutAddNormCall<>& call, NumberType type);
const char* launch_on_stream(void* stream, const DropoutAddNormBackwardCall<>& call,
                             NumberType type);
const char* launch_on_stream(void* stream, const DropoutAddPreNormCall& call, NumberType type);
const char* launch_on_stream(void* stream, const DropoutAddPreNormBackwardCall& call,
                             NumberType type);
const char* launch_on_stream(void* stream, const SoftmaxDropoutCall<>& call, NumberType type);
const char* launch_on_stream(void* stream, const SoftmaxDropoutBackwardCall<>& call,
                             NumberType type);
const char* launch_on_stream(void* stream, const CrossEntropyCall<>& call, NumberType type);
const char* launch_on_stream(void* stream, const EmbeddingSumKernel& kernel);
const char* launch_on_stream(void* stream, const EmbeddingGradientCall& call);

}  // namespace hasten::gpu
