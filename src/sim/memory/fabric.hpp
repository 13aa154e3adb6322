// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Links between simulated hosts, which are processes of one computer: each opens the others' memory by its name in
// /proc, which network namespaces share.
#pragma once

#include "base/fabric_memory.hpp"
#include "base/file_handle.hpp"

namespace mscclpp::sim {

// Of all devices of this process: hosts with the same word in MSCCLPP_SIM_FABRIC are of one clique; none without it.
FabricClique simulatedClique();

// This process's memory behind that descriptor, for as long as that is open.
FabricHandle nameMemory(int descriptor);
// Throws remoteError where the memory is no longer there, or cannot be opened from here.
FileHandle openMemory(FabricHandle const& handle);

}  // namespace mscclpp::sim
