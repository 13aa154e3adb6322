// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tuned profiles: JSON that may come from anywhere.
#include <string_view>

#include "fuzz.hpp"
#include "mscclpp/collectives/tuned_profile.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  attempt([&] { TunedProfile::parse({reinterpret_cast<char const*>(data), size}, "fuzz"); });
  return 0;
}
