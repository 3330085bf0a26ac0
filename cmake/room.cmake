# quire_room(NAME DEPENDS public... PRIVATE private...): a static library of src/NAME/**/*.cc without its tests.
# Kernel files end in _avx2.cc, _avx512.cc, _avx512bf16.cc or _amx.cc and get that instruction set; no other file may use one.
function(quire_room name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;PRIVATE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cc)
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  if(NOT sources)
    add_library(quire_${name} INTERFACE)
    target_include_directories(quire_${name} INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
    target_link_libraries(quire_${name} INTERFACE ${ARG_DEPENDS} ${ARG_PRIVATE})
    return()
  endif()
  add_library(quire_${name} STATIC ${sources})
  target_include_directories(quire_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
  target_link_libraries(quire_${name} PUBLIC ${ARG_DEPENDS} PRIVATE ${ARG_PRIVATE})
  foreach(source ${sources})
    if(source MATCHES "_amx\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512vnni;-mavx512bf16;-mamx-tile;-mamx-int8;-mamx-bf16")
    elseif(source MATCHES "_avx512bf16\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512vnni;-mavx512bf16")
    elseif(source MATCHES "_avx512\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512vnni")
    elseif(source MATCHES "_avx2\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
    elseif(source MATCHES "amx_emulated_generic\\.cc$" AND QUIRE_SANITIZE)
      # Instrumented it takes clang over four minutes; the same body on other vectors is instrumented
      # (amx_emulated_avx512bf16.cc).
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-fno-sanitize=all")
    endif()
  endforeach()
endfunction()

# quire_room_tests(rooms...): one test program quire_ROOM_test per room, of src/ROOM/**/*_test.cc.
function(quire_room_tests)
  find_package(GTest REQUIRED)
  include(GoogleTest)
  # GoogleTest's headers are most of a test's compile time: parsed once for all rooms.
  add_library(quire_test_headers OBJECT ${CMAKE_SOURCE_DIR}/cmake/test_headers.cc)
  target_link_libraries(quire_test_headers PRIVATE GTest::gtest GTest::gmock nlohmann_json::nlohmann_json Threads::Threads)
  target_compile_definitions(quire_test_headers PRIVATE FMT_SHARED GTEST_HAS_PTHREAD=1
    QUIRE_SOURCE_DIR="${CMAKE_SOURCE_DIR}" QUIRE_SHARED_DIR="${CMAKE_SOURCE_DIR}/../shared")
  target_precompile_headers(quire_test_headers PRIVATE <gmock/gmock.h> <gtest/gtest.h> <nlohmann/json.hpp>)
  foreach(name ${ARGN})
    file(GLOB_RECURSE tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*_test.cc)
    if(tests)
      add_executable(quire_${name}_test ${tests})
      target_link_libraries(quire_${name}_test PRIVATE quire_${name} GTest::gtest GTest::gmock GTest::gtest_main)
      target_precompile_headers(quire_${name}_test REUSE_FROM quire_test_headers)
      target_compile_definitions(quire_${name}_test PRIVATE FMT_SHARED GTEST_HAS_PTHREAD=1
        QUIRE_SOURCE_DIR="${CMAKE_SOURCE_DIR}" QUIRE_SHARED_DIR="${CMAKE_SOURCE_DIR}/../shared")
      if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        # GCC bugs 105329 and 105651: false alarms about std::string, which precompiled headers no longer hide.
        target_compile_options(quire_${name}_test PRIVATE -Wno-array-bounds -Wno-stringop-overflow -Wno-restrict)
      endif()
      gtest_discover_tests(quire_${name}_test DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 300)
    endif()
  endforeach()
endfunction()
