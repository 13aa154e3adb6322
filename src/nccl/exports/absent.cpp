// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What NCCL 2.28 to 2.30 have beside, and this library has not, refused in words: a program that links them all must
// find them all. Arguments are the caller's to clean up, so they need not be named.
#include "nccl/exports/exports.hpp"
#include "nccl/handle.hpp"

namespace mscclpp::nccl {
namespace {

ncclResult_t absent(char const* function, char const* why) noexcept {
  return grouped(function, [&]() -> ncclResult_t { refuse(ncclInvalidUsage, "{}", why); });
}

constexpr auto fromKernels =
    "kernels reach other ranks through this library's own headers, not through NCCL's device API";
constexpr auto parameters = "settings of this library are MSCCLPP_* variables of the environment";

// The teams of the calling rank, of no ranks where it is no communicator: all, those of its host, and those at its
// place of each host.
struct Teams {
  ncclTeam_t world{0, 0, 1};
  ncclTeam_t lsa{0, 0, 1};
  ncclTeam_t rail{0, 0, 0};
};

Teams teamsOf(char const* function, ncclComm_t comm) noexcept {
  Teams teams;
  (void)guarded(function, [&] {
    auto const one = Handle::of(comm).comm();
    int const each = one->ranksOfHost();
    teams = {
        {one->size(), one->rank(), 1}, {each, one->rank() % each, 1}, {one->size() / each, one->rank() / each, each}};
    return ncclSuccess;
  });
  return teams;
}

}  // namespace
}  // namespace mscclpp::nccl

using namespace mscclpp::nccl;

extern "C" {

ncclResult_t pncclDevCommCreate() { return absent("ncclDevCommCreate", fromKernels); }
ncclResult_t pncclDevCommDestroy() { return absent("ncclDevCommDestroy", fromKernels); }
ncclResult_t pncclGetLsaMultimemDevicePointer() { return absent("ncclGetLsaMultimemDevicePointer", fromKernels); }
ncclResult_t pncclGetMultimemDevicePointer() { return absent("ncclGetMultimemDevicePointer", fromKernels); }
ncclResult_t pncclGinBarrierCreateRequirement() { return absent("ncclGinBarrierCreateRequirement", fromKernels); }
ncclResult_t pncclGinInboxA2ACreateRequirement() { return absent("ncclGinInboxA2ACreateRequirement", fromKernels); }
ncclResult_t pncclGinOutboxCreateRequirement() { return absent("ncclGinOutboxCreateRequirement", fromKernels); }
ncclResult_t pncclLLA2ACreateRequirement() { return absent("ncclLLA2ACreateRequirement", fromKernels); }
ncclResult_t pncclLsaBarrierCreateRequirement() { return absent("ncclLsaBarrierCreateRequirement", fromKernels); }
ncclResult_t pncclParamBind() { return absent("ncclParamBind", parameters); }
ncclResult_t pncclParamGet() { return absent("ncclParamGet", parameters); }
ncclResult_t pncclParamGetAllParameterKeys() { return absent("ncclParamGetAllParameterKeys", parameters); }
ncclResult_t pncclParamGetParameter() { return absent("ncclParamGetParameter", parameters); }
ncclResult_t pncclParamGetStr() { return absent("ncclParamGetStr", parameters); }
ncclResult_t pncclParamGetI8() { return absent("ncclParamGetI8", parameters); }
ncclResult_t pncclParamGetI16() { return absent("ncclParamGetI16", parameters); }
ncclResult_t pncclParamGetI32() { return absent("ncclParamGetI32", parameters); }
ncclResult_t pncclParamGetI64() { return absent("ncclParamGetI64", parameters); }
ncclResult_t pncclParamGetU8() { return absent("ncclParamGetU8", parameters); }
ncclResult_t pncclParamGetU16() { return absent("ncclParamGetU16", parameters); }
ncclResult_t pncclParamGetU32() { return absent("ncclParamGetU32", parameters); }
ncclResult_t pncclParamGetU64() { return absent("ncclParamGetU64", parameters); }
void pncclParamDumpAll() { (void)absent("ncclParamDumpAll", parameters); }
void pncclResetDebugInit() {}
__attribute__((visibility("default"))) void ncclResetDebugInitInternal() {}
// Of NCCL's device API, where 0 slots are none.
int pncclLLA2ACalcSlots() { return 0; }

ncclTeam_t pncclTeamWorld(ncclComm_t comm) { return teamsOf("ncclTeamWorld", comm).world; }
ncclTeam_t pncclTeamLsa(ncclComm_t comm) { return teamsOf("ncclTeamLsa", comm).lsa; }
ncclTeam_t pncclTeamRail(ncclComm_t comm) { return teamsOf("ncclTeamRail", comm).rail; }
int pncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank) {
  return teamsOf("ncclTeamRankToWorld", comm).world.rank + (rank - team.rank) * team.stride;
}
int pncclTeamRankToLsa(ncclComm_t comm, ncclTeam_t team, int rank) {
  return teamsOf("ncclTeamRankToLsa", comm).lsa.rank + (rank - team.rank) * team.stride;
}
}

MSCCLPP_NCCL_FUNCTION(ncclDevCommCreate);
MSCCLPP_NCCL_FUNCTION(ncclDevCommDestroy);
MSCCLPP_NCCL_FUNCTION(ncclGetLsaMultimemDevicePointer);
MSCCLPP_NCCL_FUNCTION(ncclGetMultimemDevicePointer);
MSCCLPP_NCCL_FUNCTION(ncclGinBarrierCreateRequirement);
MSCCLPP_NCCL_FUNCTION(ncclGinInboxA2ACreateRequirement);
MSCCLPP_NCCL_FUNCTION(ncclGinOutboxCreateRequirement);
MSCCLPP_NCCL_FUNCTION(ncclLLA2ACreateRequirement);
MSCCLPP_NCCL_FUNCTION(ncclLsaBarrierCreateRequirement);
MSCCLPP_NCCL_FUNCTION(ncclParamBind);
MSCCLPP_NCCL_FUNCTION(ncclParamGet);
MSCCLPP_NCCL_FUNCTION(ncclParamGetAllParameterKeys);
MSCCLPP_NCCL_FUNCTION(ncclParamGetParameter);
MSCCLPP_NCCL_FUNCTION(ncclParamGetStr);
MSCCLPP_NCCL_FUNCTION(ncclParamGetI8);
MSCCLPP_NCCL_FUNCTION(ncclParamGetI16);
MSCCLPP_NCCL_FUNCTION(ncclParamGetI32);
MSCCLPP_NCCL_FUNCTION(ncclParamGetI64);
MSCCLPP_NCCL_FUNCTION(ncclParamGetU8);
MSCCLPP_NCCL_FUNCTION(ncclParamGetU16);
MSCCLPP_NCCL_FUNCTION(ncclParamGetU32);
MSCCLPP_NCCL_FUNCTION(ncclParamGetU64);
MSCCLPP_NCCL_FUNCTION(ncclParamDumpAll);
MSCCLPP_NCCL_FUNCTION(ncclResetDebugInit);
MSCCLPP_NCCL_FUNCTION(ncclLLA2ACalcSlots);
MSCCLPP_NCCL_FUNCTION(ncclTeamWorld);
MSCCLPP_NCCL_FUNCTION(ncclTeamLsa);
MSCCLPP_NCCL_FUNCTION(ncclTeamRail);
MSCCLPP_NCCL_FUNCTION(ncclTeamRankToWorld);
MSCCLPP_NCCL_FUNCTION(ncclTeamRankToLsa);
