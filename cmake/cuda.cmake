# _cuda: the kernels for CUDA devices, built where nvcc works and asked for by REWARDKIT_CUDA=AUTO|ON|OFF.
#
# AUTO means: in an installation by pip. A bare cmake build, which a developer repeats all day, has them for ON only.
# The search is our own and the same for AUTO and ON: check_language() and enable_language() look in different places.

function(rewardkit_find_cuda result)
  set(${result} OFF PARENT_SCOPE)
  if(REWARDKIT_CUDA STREQUAL "OFF" OR (REWARDKIT_CUDA STREQUAL "AUTO" AND NOT SKBUILD))
    return()
  endif()
  set(compiler "${CMAKE_CUDA_COMPILER}")
  if(NOT compiler AND DEFINED ENV{CUDACXX})
    set(compiler "$ENV{CUDACXX}")
  endif()
  if(NOT compiler)
    find_program(REWARDKIT_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
    if(REWARDKIT_NVCC)
      set(compiler "${REWARDKIT_NVCC}")
    endif()
  endif()
  if(NOT compiler)
    if(REWARDKIT_CUDA STREQUAL "ON")
      message(FATAL_ERROR "REWARDKIT_CUDA=ON, but there is no nvcc: put it on PATH, or set CUDACXX or CUDA_HOME")
    endif()
    return()
  endif()
  # It must also work with this host compiler.
  set(probe ${CMAKE_BINARY_DIR}/cuda_probe)
  file(WRITE ${probe}.cu "#include <cuda_runtime.h>\n__global__ void kernel() {}\n")
  execute_process(
    COMMAND ${compiler} -std=c++20 -ccbin ${CMAKE_CXX_COMPILER} -c ${probe}.cu -o ${probe}.o
    RESULT_VARIABLE failed OUTPUT_QUIET ERROR_VARIABLE why)
  if(failed)
    if(REWARDKIT_CUDA STREQUAL "ON")
      message(FATAL_ERROR "REWARDKIT_CUDA=ON, but ${compiler} cannot compile a kernel:\n${why}")
    endif()
    message(WARNING "rewardkit: ${compiler} cannot compile a kernel; building without CUDA:\n${why}")
    return()
  endif()
  set(CMAKE_CUDA_COMPILER "${compiler}" CACHE FILEPATH "nvcc" FORCE)
  if(NOT CMAKE_CUDA_HOST_COMPILER)
    set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}" CACHE FILEPATH "the host compiler that was probed" FORCE)
  endif()
  set(${result} ON PARENT_SCOPE)
endfunction()

# Only what this nvcc can make: 12.4 knows no sm_100 and 13 no sm_70, and a source build must not fail on that.
function(rewardkit_known_architectures wanted result)
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE known)
  set(kept "")
  foreach(architecture IN LISTS wanted)
    string(REGEX MATCH "^[0-9]+" number "${architecture}")
    if(architecture MATCHES "^(native|all|all-major)$" OR known MATCHES "compute_${number}[^0-9]")
      list(APPEND kept ${architecture})
    else()
      message(STATUS "rewardkit: this nvcc cannot build for ${architecture}; left out")
    endif()
  endforeach()
  if(NOT kept)
    message(FATAL_ERROR "this nvcc can build for none of REWARDKIT_CUDA_ARCHS=${wanted}; it knows:\n${known}")
  endif()
  set(${result} "${kept}" PARENT_SCOPE)
endfunction()

rewardkit_find_cuda(REWARDKIT_HAS_CUDA)
if(REWARDKIT_HAS_CUDA)
  set(CMAKE_CUDA_ARCHITECTURES 80)  # replaced below; without one, enable_language() would ask for a default
  enable_language(CUDA)
  rewardkit_known_architectures("${REWARDKIT_CUDA_ARCHS}" _architectures)
  file(GLOB _kernels CONFIGURE_DEPENDS csrc/cuda/*.cu)
  add_library(rewardkit_cuda_kernels STATIC ${_kernels})
  target_include_directories(rewardkit_cuda_kernels PUBLIC csrc)
  set_target_properties(rewardkit_cuda_kernels PROPERTIES
    CUDA_ARCHITECTURES "${_architectures}"
    CUDA_VISIBILITY_PRESET hidden
    CUDA_RUNTIME_LIBRARY Static)  # imports without driver or toolkit: libcuda is opened when it is first needed
  # The dialect is a flag below, not a property (CUDA_STANDARD, or CXX_STANDARD in its place): CMake up to 3.25 refuses 20
  # for an nvcc that is newer than it knows.
  set_property(TARGET rewardkit_cuda_kernels PROPERTY CXX_STANDARD)
  target_compile_options(rewardkit_cuda_kernels PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:--std=c++20 --expt-relaxed-constexpr -Xptxas=-warn-spills>
    # zstd, which every driver that runs CUDA 13 can read
    $<$<COMPILE_LANGUAGE:CUDA>:$<IF:$<VERSION_GREATER_EQUAL:${CMAKE_CUDA_COMPILER_VERSION},13.0>,--compress-mode=size,-Xfatbin=-compress-all>>)
  if(REWARDKIT_CUDA_STRICT)
    target_compile_options(rewardkit_cuda_kernels PRIVATE
      $<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=-v,-Werror -Xcompiler=-Wall,-Wextra,-Wshadow>)
  endif()

  file(GLOB _bindings CONFIGURE_DEPENDS csrc/cuda/*.cpp)
  pybind11_add_module(_cuda ${_bindings})
  string(REPLACE ";" " " _architectures_text "${_architectures}")
  target_compile_definitions(_cuda PRIVATE RK_MODULE_NAME=_cuda RK_CUDA_ARCHITECTURES="${_architectures_text}")
  target_compile_options(_cuda PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${REWARDKIT_WARNINGS}>)
  target_link_libraries(_cuda PRIVATE rewardkit_cuda_kernels)
  target_link_options(_cuda PRIVATE ${REWARDKIT_MODULE_LINK_OPTIONS})
  set_target_properties(_cuda PROPERTIES CUDA_RUNTIME_LIBRARY Static)
  install(TARGETS _cuda LIBRARY DESTINATION rewardkit)
  message(STATUS "rewardkit: CUDA kernels for ${_architectures_text} by ${CMAKE_CUDA_COMPILER}")
else()
  message(STATUS "rewardkit: no CUDA kernels (REWARDKIT_CUDA=${REWARDKIT_CUDA})")
endif()
