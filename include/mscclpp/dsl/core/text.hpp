// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sentences that are put together while a program is compiled.
//
// std::string would do, but not every compiler in use evaluates it at compile time.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace mscclpp::dsl {

class Text {
 public:
  constexpr Text() = default;
  constexpr explicit Text(std::string_view text) { add(text); }

  // Appends text, or a number in decimal digits, and returns this.
  constexpr Text& add(std::string_view text) {
    for (char const c : text) chars_.push_back(c);
    return *this;
  }
  constexpr Text& add(char const* text) { return add(std::string_view(text)); }
  constexpr Text& add(Text const& text) { return add(text.view()); }
  template <std::integral I>
  constexpr Text& add(I number) {
    if constexpr (std::signed_integral<I>) {
      if (number < 0) add("-");
    }
    char digits[24]{};
    std::size_t count = 0;
    do {
      auto const digit = static_cast<int>(number % 10);
      digits[count++] = static_cast<char>('0' + (digit < 0 ? -digit : digit));
      number = static_cast<I>(number / 10);
    } while (number != 0);
    while (count != 0) chars_.push_back(digits[--count]);
    return *this;
  }

  constexpr bool empty() const { return chars_.size() == 0; }
  constexpr std::size_t size() const { return chars_.size(); }
  // view() is good until the next add(); str() is a copy, for run time.
  constexpr std::string_view view() const {
    return chars_.empty() ? std::string_view() : std::string_view(chars_.data(), chars_.size());
  }
  std::string str() const { return std::string(view()); }

 private:
  std::vector<char> chars_;
};

// say("rank ", 3, " waits"): the parts in a row.
template <class... Parts>
constexpr Text say(Parts const&... parts) {
  Text text;
  (text.add(parts), ...);
  return text;
}

// A sentence as a template argument, which compilers print in their messages.
template <std::size_t Size>
struct Sentence {
  char text[Size]{};
};

}  // namespace mscclpp::dsl
