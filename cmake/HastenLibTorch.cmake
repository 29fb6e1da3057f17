# Finds a LibTorch and defines the imported target hasten::torch (headers, torch_cpu, c10) for code
# that uses tensors. This file is installed next to hastenConfig.cmake, so find_package(hasten) uses
# it too.
#
# The find_package(Torch) that PyTorch's wheels provide fails without a CUDA toolkit. This file
# therefore searches for LibTorch itself, in this order:
#   1. HASTEN_LIBTORCH            the folder that has include/ and lib/
#   2. CMAKE_PREFIX_PATH          each entry; one may be Python's torch.utils.cmake_prefix_path
#                                 (.../torch/share/cmake)
#   3. the torch of the active Python (python3 on PATH)
#   4. the wheel that ./dev keeps in the user's cache
function(hasten_is_libtorch folder result)
  if(EXISTS "${folder}/include/ATen/ATen.h" AND EXISTS "${folder}/lib/libtorch_cpu.so")
    set(${result} TRUE PARENT_SCOPE)
  else()
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()

# Sets `result` to the folder into which the scripts of tools/ fetch libraries.
function(hasten_cache_folder result)
  set(cache "$ENV{HASTEN_CACHE}")
  if(NOT cache)
    set(cache "$ENV{XDG_CACHE_HOME}")
    if(NOT cache)
      set(cache "$ENV{HOME}/.cache")
    endif()
    set(cache "${cache}/hasten")
  endif()
  set(${result} "${cache}" PARENT_SCOPE)
endfunction()

function(hasten_find_libtorch result)
  hasten_cache_folder(cache)
  if(HASTEN_LIBTORCH)
    hasten_is_libtorch("${HASTEN_LIBTORCH}" found)
    if(NOT found)
      message(FATAL_ERROR "HASTEN_LIBTORCH: got ${HASTEN_LIBTORCH}, expected a folder with include/ATen/ATen.h and "
                          "lib/libtorch_cpu.so. Hint: for a pip install that is .../site-packages/torch.")
    endif()
    set(${result} "${HASTEN_LIBTORCH}" PARENT_SCOPE)
    return()
  endif()
  set(candidates "")
  foreach(prefix IN LISTS CMAKE_PREFIX_PATH)
    list(APPEND candidates "${prefix}" "${prefix}/../..")
  endforeach()
  find_program(HASTEN_PYTHON3 python3)
  mark_as_advanced(HASTEN_PYTHON3)
  if(HASTEN_PYTHON3)
    # find_spec locates the package without importing it, which would take seconds.
    execute_process(
      COMMAND "${HASTEN_PYTHON3}" -c
              "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
      OUTPUT_VARIABLE python_torch OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    list(APPEND candidates "${python_torch}")
  endif()
  list(APPEND candidates "${cache}/libtorch-2.11.0/torch")
  foreach(candidate IN LISTS candidates)
    hasten_is_libtorch("${candidate}" found)
    if(found)
      get_filename_component(candidate "${candidate}" ABSOLUTE)
      set(${result} "${candidate}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "no LibTorch found. Hint: run ./dev setup, or pass -DHASTEN_LIBTORCH=/path/to/torch.")
endfunction()

hasten_find_libtorch(HASTEN_LIBTORCH_FOUND)
file(STRINGS "${HASTEN_LIBTORCH_FOUND}/include/torch/headeronly/version.h" hasten_version_lines
     REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) [0-9]+")
string(REGEX REPLACE "[^0-9;]" "" hasten_version_numbers "${hasten_version_lines}")
list(JOIN hasten_version_numbers "." HASTEN_LIBTORCH_VERSION)
if(HASTEN_LIBTORCH_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "LibTorch at ${HASTEN_LIBTORCH_FOUND}: got version ${HASTEN_LIBTORCH_VERSION}, expected 2.11 or newer.")
endif()
message(STATUS "LibTorch ${HASTEN_LIBTORCH_VERSION}: ${HASTEN_LIBTORCH_FOUND}")

# Imported targets belong to a directory, so each directory that calls find_package(hasten) defines
# them again.
if(TARGET hasten::torch)
  return()
endif()
add_library(hasten::c10 SHARED IMPORTED)
set_target_properties(hasten::c10 PROPERTIES IMPORTED_LOCATION "${HASTEN_LIBTORCH_FOUND}/lib/libc10.so")
add_library(hasten::torch_cpu SHARED IMPORTED)
set_target_properties(hasten::torch_cpu PROPERTIES IMPORTED_LOCATION "${HASTEN_LIBTORCH_FOUND}/lib/libtorch_cpu.so")

# The include folders are SYSTEM so that LibTorch's headers cause no warnings. libtorch_cpu needs
# libcudart and libcupti. Its own rpath finds them at run time, but the linker does not search
# there, so their symbols stay unresolved at link time.
add_library(hasten::torch INTERFACE IMPORTED)
target_include_directories(hasten::torch SYSTEM INTERFACE "${HASTEN_LIBTORCH_FOUND}/include"
                                                          "${HASTEN_LIBTORCH_FOUND}/include/torch/csrc/api/include")
target_compile_definitions(hasten::torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
target_link_libraries(hasten::torch INTERFACE hasten::torch_cpu hasten::c10)
target_link_options(hasten::torch INTERFACE "LINKER:--allow-shlib-undefined")
