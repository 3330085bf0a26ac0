# quire_embed(TARGET FILE HEADER SYMBOL): the text of FILE as `extern const std::string_view quire::SYMBOL`, which
# HEADER (an include path) declares. Made again whenever FILE changes.
function(quire_embed target file header symbol)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${file})
  file(READ ${CMAKE_SOURCE_DIR}/${file} text)
  set(output ${CMAKE_BINARY_DIR}/embedded/${symbol}.cc)
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT
       "#include \"@header@\"\n\nnamespace quire {\n\nconst std::string_view @symbol@ = R\"embedded(@text@)embedded\";\n\n}  // namespace quire\n")
  target_sources(${target} PRIVATE ${output})
endfunction()
