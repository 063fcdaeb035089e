# How every target of the project is made: flags in one place, one library a folder.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

add_library(tern_flags INTERFACE)
target_include_directories(tern_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
# The flags of g++ and clang++; what nvcc takes is in TernCuda.cmake.
target_compile_options(tern_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wnon-virtual-dtor;-Werror>"
                       # An inexact contraction a*b+c -> fma would make ref and the ISA kernels disagree in the last bit.
                       "$<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off;-fno-math-errno>"
                       # Messages name files from the root of the tree, wherever it was built.
                       "$<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(tern_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)  # false positive on std::string operator+, GCC bug 105651
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  # The floor of every translation unit but the ISA kernels: a binary starts on any CPU since 2009.
  target_compile_options(tern_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=x86-64-v2>)
endif()
if(TERN_SANITIZE)
  target_compile_options(tern_flags INTERFACE -fsanitize=${TERN_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(tern_flags INTERFACE -fsanitize=${TERN_SANITIZE})
endif()
if(TERN_FUZZ)
  target_compile_options(tern_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# tern_library(name SOURCES... [DEPS ...]) - static library `tern_<name>`.
function(tern_library name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  add_library(tern_${name} STATIC ${A_SOURCES})
  target_link_libraries(tern_${name} PUBLIC tern_flags ${A_DEPS})
endfunction()

# tern_test(name SOURCES... DEPS...) - GoogleTest executable `test_<name>`, one ctest entry a TEST.
function(tern_test name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(test_${name} ${A_SOURCES})
  target_link_libraries(test_${name} PRIVATE tern_flags GTest::gtest GTest::gtest_main ${A_DEPS})
  target_include_directories(test_${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_options(test_${name} PRIVATE $<$<CONFIG:Release>:-O1>)  # what is tested keeps -O3; this builds faster
  target_compile_definitions(test_${name} PRIVATE TERN_SOURCE_DIR="${CMAKE_SOURCE_DIR}" TERN_BINARY_DIR="${CMAKE_BINARY_DIR}")
  set(timeout 600)
  if(TERN_SANITIZE)
    set(timeout 3600)  # ThreadSanitizer takes whole models ten to twenty times as long
  endif()
  gtest_discover_tests(test_${name} PROPERTIES TIMEOUT ${timeout} DISCOVERY_TIMEOUT 60)
endfunction()
