// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Has the name of NVIDIA's management library, and tells of GPUs in a fabric what the test wants to hear.
#include <cstdint>
#include <cstring>
#include <string_view>

namespace {

struct FabricInfo {
  unsigned version;
  std::uint8_t cluster[16];
  int status;
  unsigned clique;
  std::uint8_t state;
  unsigned health;
};
FabricInfo told{};

}  // namespace

extern "C" {

// ---- for the test: all but the version
void fakeManagementTell(int state, int status, int cluster, unsigned clique) {
  std::memset(told.cluster, cluster, sizeof told.cluster);
  told.status = status;
  told.clique = clique;
  told.state = static_cast<std::uint8_t>(state);
}

// ---- the library's
int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(char const* busId, void** device) {
  *device = &told;
  return std::string_view(busId).empty() ? 2 : 0;
}
int nvmlDeviceGetGpuFabricInfoV(void*, FabricInfo* info) {
  if (info->version != 0x02000024) return 25;
  auto const version = info->version;
  *info = told;
  info->version = version;
  return 0;
}

}  // extern "C"
