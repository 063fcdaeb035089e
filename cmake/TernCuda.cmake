# The CUDA language and how its files are compiled. Device code never includes what needs fmt or the standard library's
# containers: kernels and their launchers are .cu, everything else of the backend is plain C++.
find_package(CUDAToolkit REQUIRED)
if(NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  # Machine code from Turing to Hopper, and PTX that newer devices compile when they first load it. 90a has the
  # tensor-core instructions of that chip alone.
  set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real 89-real 90a-real 90-virtual CACHE STRING "CUDA architectures to build for")
endif()
enable_language(CUDA)
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # CMake 3.25 does not know it
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
if(CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()
target_compile_options(tern_flags INTERFACE
                       "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-Werror=all-warnings;-Xcompiler=-Wall>")
