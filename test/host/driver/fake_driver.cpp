// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Has the name of the CUDA driver's library, and writes down how it is called: what takes part in multicast memory and
// in fabric handles, and every way to ask for such functions. Keeps track of what was made and not given back, and
// fails where it is told to.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace {

struct Properties {
  unsigned devices;
  std::size_t size;
  unsigned long long handleTypes;
  unsigned long long flags;
};
struct Access {
  int type;
  int id;
  int flags;
};

struct Allocation {
  int type;
  int handleTypes;
  int location;
  int device;
};

constexpr std::size_t granularity = 65536;
constexpr std::size_t fabricHandleBytes = 64;

struct State {
  std::mutex mutex;
  std::map<std::string, int> calls;
  std::string failing;  // function
  int failAfter = 0;    // of its calls succeed
  bool supported = true;
  bool fabric = true;
  std::map<unsigned long long, ino_t> handles;  // with the object that each stands for
  unsigned long long lastHandle = 0;
  std::map<ino_t, int> devices;  // added to each object, by this process
  std::map<std::size_t, std::size_t> reserved;
  int mapped = 0;
  int bound = 0;
};
State& state() {
  static State instance;
  return instance;
}

// 0, or the error that was asked for.
int note(State& s, char const* name) {
  ++s.calls[name];
  return s.failing == name && s.failAfter-- <= 0 ? 801 : 0;
}

// The handle's value is the descriptor, so that it can be exported.
int keep(unsigned long long& handle, int file) {
  struct stat status {};
  if (::fstat(file, &status) != 0) return 1;
  handle = static_cast<unsigned long long>(file);
  state().handles[handle] = status.st_ino;
  return 0;
}
int make(unsigned long long& handle) { return keep(handle, ::memfd_create("fake_memory", MFD_CLOEXEC)); }
// The same memory once more.
int again(unsigned long long& handle, unsigned long long known) {
  return keep(handle, ::fcntl(static_cast<int>(known), F_DUPFD_CLOEXEC, 0));
}

}  // namespace

extern "C" {

// ---- for the test
int fakeDriverCalls(char const* name) {
  std::lock_guard const lock(state().mutex);
  auto const found = state().calls.find(name);
  return found == state().calls.end() ? 0 : found->second;
}
// Of functions whose name contains "Multicast", and requests for one.
int fakeDriverMulticastCalls() {
  std::lock_guard const lock(state().mutex);
  int total = 0;
  for (auto const& [name, count] : state().calls) total += name.find("Multicast") != std::string::npos ? count : 0;
  return total;
}
int fakeDriverAllCalls() {
  std::lock_guard const lock(state().mutex);
  int total = 0;
  for (auto const& [name, count] : state().calls) total += count;
  return total;
}
void fakeDriverFail(char const* name, int after) {
  std::lock_guard const lock(state().mutex);
  state().failing = name;
  state().failAfter = after;
}
void fakeDriverFabric(int supported) { state().fabric = supported != 0; }
void fakeDriverSupport(int supported) { state().supported = supported != 0; }
// What was made and not given back: handles, bindings, mappings, ranges of addresses.
int fakeDriverLeft() {
  std::lock_guard const lock(state().mutex);
  auto const& s = state();
  return static_cast<int>(s.handles.size() + s.reserved.size()) + s.bound + s.mapped;
}

// ---- the driver's
int cuInit(unsigned) {
  std::lock_guard const lock(state().mutex);
  return note(state(), "cuInit");
}
int cuGetErrorName(int code, char const** name) {
  *name = code == 801 ? "CUDA_ERROR_NOT_SUPPORTED" : code == 1 ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_OTHER";
  return 0;
}
int cuDeviceGet(int* number, int device) {
  std::lock_guard const lock(state().mutex);
  *number = device;
  return note(state(), "cuDeviceGet");
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  std::lock_guard const lock(state().mutex);
  *value = (attribute == 132 && state().supported) || (attribute == 128 && state().fabric) ? 1 : 0;
  return note(state(), attribute == 132 ? "cuDeviceGetAttribute(Multicast)" : "cuDeviceGetAttribute");
}
// All that anybody asks for by name is counted, and not given.
int cuGetProcAddress(char const* name, void** function, int, unsigned long long) {
  std::lock_guard const lock(state().mutex);
  *function = nullptr;
  (void)note(state(), (std::string("look up ") + name).c_str());
  return 500;
}
int cuGetProcAddress_v2(char const* name, void** function, int version, unsigned long long flags, void*) {
  return cuGetProcAddress(name, function, version, flags);
}

int cuMulticastGetGranularity(std::size_t* bytes, Properties const* properties, int) {
  std::lock_guard const lock(state().mutex);
  *bytes = granularity;
  return properties->handleTypes == 1 && properties->devices > 0 ? note(state(), "cuMulticastGetGranularity") : 1;
}
int cuMulticastCreate(unsigned long long* handle, Properties const* properties) {
  std::lock_guard const lock(state().mutex);
  auto& s = state();
  if (auto const code = note(s, "cuMulticastCreate")) return code;
  if (properties->size == 0 || properties->size % granularity != 0) return 1;
  return make(*handle);
}
int cuMemExportToShareableHandle(void* out, unsigned long long handle, int type, unsigned long long) {
  std::lock_guard const lock(state().mutex);
  if (auto const code = note(state(), "cuMemExportToShareableHandle")) return code;
  if (state().handles.count(handle) == 0) return 1;
  if (type == 8) {
    std::memset(out, 0, fabricHandleBytes);
    std::memcpy(out, &state().handles[handle], sizeof(ino_t));
    return 0;
  }
  if (type != 1) return 1;
  int const copy = ::fcntl(static_cast<int>(handle), F_DUPFD_CLOEXEC, 0);
  std::memcpy(out, &copy, sizeof copy);
  return 0;
}
int cuMemImportFromShareableHandle(unsigned long long* handle, void* file, int type) {
  std::lock_guard const lock(state().mutex);
  if (auto const code = note(state(), "cuMemImportFromShareableHandle")) return code;
  if (type == 8) {
    ino_t memory = 0;
    std::memcpy(&memory, file, sizeof memory);
    for (auto const& [known, node] : state().handles) {
      if (node == memory) return again(*handle, known);
    }
    return 1;
  }
  return type == 1 ? again(*handle, reinterpret_cast<std::size_t>(file)) : 1;
}
int cuMemGetAllocationGranularity(std::size_t* bytes, Allocation const* properties, int) {
  std::lock_guard const lock(state().mutex);
  *bytes = granularity;
  return properties->type == 1 && properties->location == 1 ? note(state(), "cuMemGetAllocationGranularity") : 1;
}
int cuMemCreate(unsigned long long* handle, std::size_t bytes, Allocation const* properties, unsigned long long) {
  std::lock_guard const lock(state().mutex);
  if (auto const code = note(state(), "cuMemCreate")) return code;
  if (bytes == 0 || bytes % granularity != 0 || properties->handleTypes != 9) return 1;
  return make(*handle);
}
// Of any address but 0, as of memory of its own.
int cuMemRetainAllocationHandle(unsigned long long* handle, void* address) {
  std::lock_guard const lock(state().mutex);
  if (auto const code = note(state(), "cuMemRetainAllocationHandle")) return code;
  return address == nullptr ? 1 : make(*handle);
}
int cuMulticastAddDevice(unsigned long long handle, int) {
  std::lock_guard const lock(state().mutex);
  if (auto const code = note(state(), "cuMulticastAddDevice")) return code;
  if (state().handles.count(handle) == 0) return 1;
  ++state().devices[state().handles[handle]];
  return 0;
}
int cuMulticastBindAddr(unsigned long long handle, std::size_t offset, unsigned long long address, std::size_t bytes,
                        unsigned long long) {
  std::lock_guard const lock(state().mutex);
  if (auto const code = note(state(), "cuMulticastBindAddr")) return code;
  if (state().handles.count(handle) == 0 || offset % granularity != 0 || bytes % granularity != 0 || address == 0)
    return 1;
  ++state().bound;
  return 0;
}
int cuMulticastUnbind(unsigned long long handle, int, std::size_t, std::size_t) {
  std::lock_guard const lock(state().mutex);
  if (auto const code = note(state(), "cuMulticastUnbind")) return code;
  if (state().handles.count(handle) == 0) return 1;
  --state().bound;
  return 0;
}
int cuMemAddressReserve(unsigned long long* base, std::size_t bytes, std::size_t, unsigned long long,
                        unsigned long long) {
  std::lock_guard const lock(state().mutex);
  if (auto const code = note(state(), "cuMemAddressReserve")) return code;
  *base = 0x700000000000ull + (++state().lastHandle << 32);
  state().reserved[*base] = bytes;
  return 0;
}
int cuMemAddressFree(unsigned long long base, std::size_t bytes) {
  std::lock_guard const lock(state().mutex);
  if (auto const code = note(state(), "cuMemAddressFree")) return code;
  auto const found = state().reserved.find(base);
  if (found == state().reserved.end() || found->second != bytes) return 1;
  state().reserved.erase(found);
  return 0;
}
int cuMemMap(unsigned long long base, std::size_t, std::size_t, unsigned long long handle, unsigned long long) {
  std::lock_guard const lock(state().mutex);
  if (auto const code = note(state(), "cuMemMap")) return code;
  if (state().reserved.count(base) == 0 || state().handles.count(handle) == 0) return 1;
  ++state().mapped;
  return 0;
}
int cuMemUnmap(unsigned long long base, std::size_t) {
  std::lock_guard const lock(state().mutex);
  if (auto const code = note(state(), "cuMemUnmap")) return code;
  if (state().reserved.count(base) == 0) return 1;
  --state().mapped;
  return 0;
}
int cuMemSetAccess(unsigned long long base, std::size_t, Access const* access, std::size_t count) {
  std::lock_guard const lock(state().mutex);
  if (auto const code = note(state(), "cuMemSetAccess")) return code;
  return state().reserved.count(base) == 1 && count == 1 && access->type == 1 && access->flags == 3 ? 0 : 1;
}
int cuMemRelease(unsigned long long handle) {
  std::lock_guard const lock(state().mutex);
  if (auto const code = note(state(), "cuMemRelease")) return code;
  if (state().handles.erase(handle) == 0) return 1;
  ::close(static_cast<int>(handle));
  return 0;
}

}  // extern "C"
