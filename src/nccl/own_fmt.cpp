// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The functions of {fmt} that the library calls, as its own: it goes to machines that have no libfmt.so, or one of
// another version. Compiled with all inline functions kept.
#define FMT_HEADER_ONLY
#include <fmt/format.h>
