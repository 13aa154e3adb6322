// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Has the name of the CUDA driver's library, and two GPUs that do not reach each other. FAKE_GPUS tells what is wrong:
// "stub" (the toolkit's library to link with), "none" (no GPU), "old" (a driver for CUDA 11.4), "" (nothing).
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {
bool is(std::string_view what) {
  char const* const said = std::getenv("FAKE_GPUS");
  return said != nullptr && what == said;
}
}  // namespace

extern "C" {

int cuInit(unsigned) { return is("stub") ? 34 : is("none") ? 100 : 0; }
int cuDriverGetVersion(int* version) {
  *version = is("old") ? 11040 : 13000;
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = 2;
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}
int cuDeviceGetName(char* name, int size, int) {
  return std::snprintf(name, static_cast<std::size_t>(size), "FAKE GPU") < 0;
}
int cuDeviceTotalMem_v2(std::size_t* bytes, int) {
  *bytes = std::size_t{80} << 30;
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? 9 : attribute == 16 ? 132 : 0;
  return 0;
}
int cuDeviceGetPCIBusId(char* id, int size, int device) {
  return std::snprintf(id, static_cast<std::size_t>(size), "0000:%02d:00.0", device) < 0;
}
int cuDeviceCanAccessPeer(int* can, int, int) {
  *can = 0;
  return 0;
}
int cuDeviceGetP2PAttribute(int* value, int, int, int) {
  *value = 0;
  return 0;
}
}
