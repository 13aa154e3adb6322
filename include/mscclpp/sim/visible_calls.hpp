// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compilers carry out small copies and comparisons in place, after they have put in their calls for race detection,
// which so know nothing of them. Sources under the checker are compiled with -fno-builtin-memcpy and the like, which
// does not hold for the builtins' own names, as the standard library writes them. So each such source includes this
// before all else (cmake/MscclppCheck.cmake), and the builtins are functions, but in constant expressions. Not to be
// included by hand.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define MSCCLPP_HAS_HOOKS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MSCCLPP_HAS_HOOKS 1
#endif
#endif

#ifdef MSCCLPP_HAS_HOOKS

#include <cstring>

#include <strings.h>

namespace mscclpp::sim {

// g++ warns of the builtin itself wherever it is always false.
[[gnu::always_inline]] constexpr inline bool isConstantExpression() noexcept {
  return __builtin_is_constant_evaluated();
}

}  // namespace mscclpp::sim

#define MSCCLPP_VISIBLE_CALL(builtin, function) (::mscclpp::sim::isConstantExpression() ? builtin : function)

#define __builtin_memcpy(...) MSCCLPP_VISIBLE_CALL(__builtin_memcpy(__VA_ARGS__), memcpy(__VA_ARGS__))
#define __builtin_memmove(...) MSCCLPP_VISIBLE_CALL(__builtin_memmove(__VA_ARGS__), memmove(__VA_ARGS__))
#define __builtin_memset(...) MSCCLPP_VISIBLE_CALL(__builtin_memset(__VA_ARGS__), memset(__VA_ARGS__))
#define __builtin_mempcpy(...) MSCCLPP_VISIBLE_CALL(__builtin_mempcpy(__VA_ARGS__), mempcpy(__VA_ARGS__))
#define __builtin_bcopy(...) MSCCLPP_VISIBLE_CALL(__builtin_bcopy(__VA_ARGS__), bcopy(__VA_ARGS__))
#define __builtin_bzero(...) MSCCLPP_VISIBLE_CALL(__builtin_bzero(__VA_ARGS__), bzero(__VA_ARGS__))
#define __builtin_memcmp(...) MSCCLPP_VISIBLE_CALL(__builtin_memcmp(__VA_ARGS__), memcmp(__VA_ARGS__))
#define __builtin_bcmp(...) MSCCLPP_VISIBLE_CALL(__builtin_bcmp(__VA_ARGS__), bcmp(__VA_ARGS__))
#define __builtin_memchr(...) MSCCLPP_VISIBLE_CALL(__builtin_memchr(__VA_ARGS__), memchr(__VA_ARGS__))
#define __builtin_strlen(...) MSCCLPP_VISIBLE_CALL(__builtin_strlen(__VA_ARGS__), strlen(__VA_ARGS__))
#define __builtin_strcmp(...) MSCCLPP_VISIBLE_CALL(__builtin_strcmp(__VA_ARGS__), strcmp(__VA_ARGS__))
#define __builtin_strncmp(...) MSCCLPP_VISIBLE_CALL(__builtin_strncmp(__VA_ARGS__), strncmp(__VA_ARGS__))
#define __builtin_strcpy(...) MSCCLPP_VISIBLE_CALL(__builtin_strcpy(__VA_ARGS__), strcpy(__VA_ARGS__))
#define __builtin_strncpy(...) MSCCLPP_VISIBLE_CALL(__builtin_strncpy(__VA_ARGS__), strncpy(__VA_ARGS__))
#define __builtin_stpcpy(...) MSCCLPP_VISIBLE_CALL(__builtin_stpcpy(__VA_ARGS__), stpcpy(__VA_ARGS__))

#endif
