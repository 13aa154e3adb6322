// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How algorithms of the program come here: mscclpp/nccl/registration_abi.hpp.
#include <string>

#include "nccl/exports/exports.hpp"
#include "nccl/registry.hpp"

namespace mscclpp::nccl {
namespace {

ncclResult_t told(ncclResult_t code, char* why, std::size_t room) noexcept {
  if (code == ncclSuccess || why == nullptr || room == 0) return code;
  std::string_view const text = lastError();
  why[text.copy(why, room - 1)] = 0;
  return code;
}

}  // namespace
}  // namespace mscclpp::nccl

using namespace mscclpp::nccl;

extern "C" {

__attribute__((visibility("default"))) int mscclppNcclRegister(MscclppNcclAlgorithm const* algorithm, char* why,
                                                               std::size_t room) {
  auto const code = guarded(mscclpp::ncclRegisterName, [&] {
    if (algorithm == nullptr) refuse(ncclInvalidArgument, "there is no algorithm");
    addRegistered(*algorithm);
    return ncclSuccess;
  });
  return told(code, why, room);
}

__attribute__((visibility("default"))) int mscclppNcclUnregister(char const* collective, char const* name) {
  return guarded(mscclpp::ncclUnregisterName, [&] {
    if (collective == nullptr || name == nullptr || !removeRegistered(collective, name)) {
      refuse(ncclInvalidArgument, "no {} \"{}\" is registered", collective == nullptr ? "?" : collective,
             name == nullptr ? "?" : name);
    }
    return ncclSuccess;
  });
}
}
