// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The profiles that come with the library, for tests of the choices that go by them.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "mscclpp/collectives/tuned_profile.hpp"

namespace mscclpp_test {

// As if they were of this device.
inline std::shared_ptr<mscclpp::TunedProfile const> profileOf(std::string const& device) {
  using mscclpp::TunedProfile;
  auto const installed = TunedProfile::installed();
  REQUIRE(installed != nullptr);
  auto text = installed->json();
  std::string const measured = "NVIDIA H200";
  for (auto at = text.find(measured); at != std::string::npos; at = text.find(measured, at)) {
    text.replace(at, measured.size(), device);
  }
  return std::make_shared<TunedProfile>(TunedProfile::parse(text, "the installed profiles"));
}

}  // namespace mscclpp_test
