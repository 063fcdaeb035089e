# cmake -DBUILD=<folder> -DGENERATOR=<name> -DCOMPILER=<path> -P check.cmake
# Builds TERN_FAMILIES="bitnet;qwen35" and checks that the others are refused by name; then that an unknown family does not
# configure.
function(configure families result output)
  execute_process(COMMAND ${CMAKE_COMMAND} -G ${GENERATOR} -S ${CMAKE_CURRENT_LIST_DIR} -B ${BUILD}
                          -DCMAKE_CXX_COMPILER=${COMPILER} "-DTERN_FAMILIES=${families}"
                  RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  set(${result} ${code} PARENT_SCOPE)
  set(${output} "${text}" PARENT_SCOPE)
endfunction()

function(expect text wanted)
  string(FIND "${text}" "${wanted}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "expected '${wanted}' in:\n${text}")
  endif()
endfunction()

configure("bitnet;gpt9" code text)
if(code EQUAL 0)
  message(FATAL_ERROR "a family that does not exist was configured")
endif()
expect("${text}" "TERN_FAMILIES names 'gpt9', which src/models does not have")

configure("bitnet;qwen35" code text)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "${text}")
endif()
execute_process(COMMAND ${CMAKE_COMMAND} --build ${BUILD} --target probe RESULT_VARIABLE code OUTPUT_VARIABLE text)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "${text}")
endif()
execute_process(COMMAND ${BUILD}/probe llama qwen2 qwen3moe qwen35moe bitnet-25 WORKING_DIRECTORY ${BUILD}
                OUTPUT_VARIABLE text RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "the probe failed: ${code}\n${text}")
endif()
set(known "qwen35, qwen35moe, bitnet-b1.58, bitnet-25, bitnet")
foreach(left_out llama qwen2 qwen3moe)
  expect("${text}" "is of architecture '${left_out}', which this build does not know; it knows ${known}")
endforeach()
foreach(kept qwen35moe bitnet-25)  # known, so what is missing is the first key
  expect("${text}" "the file has no metadata key '${kept}.block_count'")
endforeach()
