// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a profiler puts into a program through NVTX_INJECTION64_PATH: keeps the ranges that the program marks.
#include <nvtx3/nvToolsExt.h>

#include <map>
#include <mutex>
#include <string>

namespace {

std::mutex mutex;
std::string text;
int ended = 0;

nvtxDomainHandle_t createDomain(char const* name) {
  return reinterpret_cast<nvtxDomainHandle_t>(new std::string(name));  // as long as the process
}

int push(nvtxDomainHandle_t domain, nvtxEventAttributes_t const* range) {
  std::lock_guard const lock(mutex);
  text += *reinterpret_cast<std::string const*>(domain) + ": " + range->message.ascii + "\n";
  return 0;
}

int pop(nvtxDomainHandle_t) {
  std::lock_guard const lock(mutex);
  ++ended;
  return 0;
}

template <class F>
void put(NvtxFunctionTable table, unsigned id, F* function) {
  *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

// Since it was last asked.
extern "C" [[gnu::visibility("default")]] char const* readRanges() {
  static std::string read;
  std::lock_guard const lock(mutex);
  read = text + std::to_string(ended) + " ended\n";
  text.clear();
  ended = 0;
  return read.c_str();
}

extern "C" [[gnu::visibility("default")]] int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t getExportTable) {
  auto const* const callbacks = static_cast<NvtxExportTableCallbacks const*>(getExportTable(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  if (size <= NVTX_CBID_CORE2_DomainCreateA) return 0;
  put(table, NVTX_CBID_CORE2_DomainCreateA, &createDomain);
  put(table, NVTX_CBID_CORE2_DomainRangePushEx, &push);
  put(table, NVTX_CBID_CORE2_DomainRangePop, &pop);
  return 1;
}
