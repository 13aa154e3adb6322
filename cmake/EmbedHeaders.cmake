# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Writes a C++ source with the text of headers, for kernels that are compiled where no header is installed.
#
#   cmake -DLIST=FILE -DOUTPUT=FILE.cpp -P EmbedHeaders.cmake
#
# LIST has a line for each header: the name to include it by, a space, its file.
file(STRINGS "${LIST}" lines)
file(WRITE "${OUTPUT}.new" "// Written by cmake/EmbedHeaders.cmake.\n#include \"jit/embedded.hpp\"\n\nnamespace mscclpp::jit {\n"
     "namespace {\nconstexpr Embedded all[] = {\n")
foreach(line IN LISTS lines)
  string(FIND "${line}" " " space)
  string(SUBSTRING "${line}" 0 ${space} name)
  math(EXPR space "${space} + 1")
  string(SUBSTRING "${line}" ${space} -1 path)
  file(READ "${path}" text)
  file(APPEND "${OUTPUT}.new" "{\"${name}\", R\"header(" "${text}" ")header\"},\n")
endforeach()
file(APPEND "${OUTPUT}.new" "};\n}  // namespace\n\nstd::span<Embedded const> embeddedHeaders() { return all; }\n\n}  // namespace mscclpp::jit\n")
file(COPY_FILE "${OUTPUT}.new" "${OUTPUT}" ONLY_IF_DIFFERENT)
file(REMOVE "${OUTPUT}.new")
