# cmake --install installs the headers, the libraries, the command, the licences, and a package for
# find_package(hasten).
include(CMakePackageConfigHelpers)

set(HASTEN_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/hasten)

# Installed programs find hasten's libraries relative to themselves, and LibTorch where it was at
# build time.
set_target_properties(hasten hasten_core PROPERTIES INSTALL_RPATH "$ORIGIN;${HASTEN_LIBTORCH_FOUND}/lib")
set_target_properties(hasten PROPERTIES EXPORT_NAME hasten)
set_target_properties(hasten_core PROPERTIES EXPORT_NAME core)
set_target_properties(hasten-cli PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
set_target_properties(hasten-torch PROPERTIES INSTALL_RPATH "$ORIGIN/../../${CMAKE_INSTALL_LIBDIR};${HASTEN_LIBTORCH_FOUND}/lib")

install(TARGETS hasten hasten_core EXPORT hastenTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
set_target_properties(hasten_attach PROPERTIES INSTALL_RPATH "$ORIGIN;${HASTEN_LIBTORCH_FOUND}/lib")
if(TARGET hasten_tpu)
  set_target_properties(hasten_tpu PROPERTIES INSTALL_RPATH "$ORIGIN;${HASTEN_LIBTORCH_FOUND}/lib")
endif()
# What a machine can build depends on its toolkits and libraries.
set(HASTEN_MODULES hasten_attach hasten_preload)
foreach(module IN ITEMS hasten_cuda_graphs hasten_nccl hasten_row_kernels hasten_terminal hasten_tpu hasten_images hasten_arrow
                        hasten_dry_tpu)
  if(TARGET ${module})
    list(APPEND HASTEN_MODULES ${module})
  endif()
endforeach()
install(TARGETS ${HASTEN_MODULES} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
set(HASTEN_REPLACEMENTS)
foreach(name IN ITEMS cuda cudnn cufile)
  if(TARGET hasten_no_${name})
    list(APPEND HASTEN_REPLACEMENTS hasten_no_${name})
  endif()
endforeach()
if(HASTEN_REPLACEMENTS)
  install(TARGETS ${HASTEN_REPLACEMENTS} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/hasten_no_cuda)
endif()
install(TARGETS hasten-cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS hasten-torch RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/hasten)
# Builds all that cmake --install copies, without the tests.
add_custom_target(hasten_installed DEPENDS hasten hasten_core hasten-cli hasten-torch ${HASTEN_MODULES} ${HASTEN_REPLACEMENTS})
install(DIRECTORY include/hasten DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES LICENSE THIRD-PARTY-NOTICES DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(EXPORT hastenTargets NAMESPACE hasten:: DESTINATION ${HASTEN_PACKAGE_DIR})

configure_package_config_file(cmake/hastenConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/hastenConfig.cmake
                              INSTALL_DESTINATION ${HASTEN_PACKAGE_DIR})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/hastenConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/hastenConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/hastenConfigVersion.cmake
              cmake/HastenLibTorch.cmake DESTINATION ${HASTEN_PACKAGE_DIR})
