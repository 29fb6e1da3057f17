# Builds hasten's kernels for GPUs with nvcc, if LibTorch has CUDA and nvcc is installed. CUDA's runtime is linked statically, so that the
# module needs no other library than LibTorch's.
find_program(HASTEN_NVCC NAMES nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
mark_as_advanced(HASTEN_NVCC)
set(cuda_library ${HASTEN_LIBTORCH_FOUND}/lib/libc10_cuda.so)
cmake_path(GET HASTEN_NVCC PARENT_PATH toolkit)
cmake_path(GET toolkit PARENT_PATH toolkit)
set(cuda_runtime ${toolkit}/lib64/libcudart_static.a)
if(NOT HASTEN_NVCC OR NOT EXISTS ${cuda_library} OR NOT EXISTS ${cuda_runtime})
  message(STATUS "Kernels for GPUs: not built, without nvcc, ${cuda_runtime} or ${cuda_library}")
  return()
endif()
message(STATUS "Kernels for GPUs: ${HASTEN_NVCC}")

# Machine code for Ampere and Hopper; the driver compiles the other code for Turing and for newer GPUs.
set(kernels ${PROJECT_SOURCE_DIR}/src/device/cuda/kernels)
file(GLOB kernel_headers CONFIGURE_DEPENDS ${kernels}/*.h)
set(object ${CMAKE_CURRENT_BINARY_DIR}/row_kernels.o)
add_custom_command(
  OUTPUT ${object}
  COMMAND ${HASTEN_NVCC} -std=c++20 -O3 -Xfatbin=-compress-all -ccbin ${CMAKE_CXX_COMPILER} --generate-code arch=compute_75,code=compute_75
          --generate-code arch=compute_80,code=sm_80 --generate-code arch=compute_90,code=sm_90 --generate-code arch=compute_90,code=compute_90
          -Xcompiler -fPIC,-fvisibility=hidden -I${PROJECT_SOURCE_DIR}/src -c ${kernels}/row_kernels.cu -o ${object}
  DEPENDS ${kernels}/row_kernels.cu ${kernel_headers}
  COMMENT "Building the kernels for GPUs with nvcc"
  VERBATIM)

add_library(hasten_row_kernels MODULE row_kernel_module.cpp ${object})
target_include_directories(hasten_row_kernels PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_include_directories(hasten_row_kernels SYSTEM PRIVATE ${toolkit}/include)
target_link_libraries(hasten_row_kernels PRIVATE hasten_warnings hasten::torch ${cuda_library} ${cuda_runtime} rt ${CMAKE_DL_LIBS})
# The libraries that LibTorch's CUDA libraries need are found when the module is loaded, on a machine with a GPU.
target_link_options(hasten_row_kernels PRIVATE -Wl,--allow-shlib-undefined -Wl,--exclude-libs,ALL)
