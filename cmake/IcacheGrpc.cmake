# icache_grpc: gRPC with reflection, protobuf and the abseil that both are built on.
#
# With ICACHE_STATIC_GRPC the imported targets of these three are pointed at Debian's static archives, for every target
# of the project at once: a program that linked gRPC's archives beside abseil's shared libraries would hold two abseils.
# What they use below that (OpenSSL, c-ares, RE2, zlib) stays shared. Worth 7 % of the server's CPU per call.
function(icache_use_static_archives)
  get_directory_property(targets IMPORTED_TARGETS)
  foreach(target IN LISTS targets)
    foreach(property IMPORTED_LOCATION IMPORTED_LOCATION_NONE IMPORTED_LOCATION_RELEASE)
      get_target_property(location ${target} ${property})
      if(location MATCHES "/lib(absl_[a-z0-9_]+|grpc[a-z_+]*|gpr|upb|address_sorting|protobuf)\\.so[.0-9]*$")
        string(REGEX REPLACE "\\.so[.0-9]*$" ".a" archive ${location})
        if(NOT EXISTS ${archive})
          message(FATAL_ERROR "ICACHE_STATIC_GRPC: ${target} has no static archive ${archive}")
        endif()
        set_target_properties(${target} PROPERTIES ${property} ${archive})
      endif()
    endforeach()
  endforeach()
endfunction()

if(ICACHE_STATIC_GRPC)
  icache_use_static_archives()
endif()

add_library(icache_grpc INTERFACE)
target_link_libraries(icache_grpc INTERFACE gRPC::grpc++ gRPC::grpc++_reflection)
