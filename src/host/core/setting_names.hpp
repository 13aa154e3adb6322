// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What names of environment variables mean something. Misspelt ones would be without effect and without a word, and so
// would those of MSCCL++ that this library has under another name, or does not have.
//
// Whoever reads the environment first has the library warn of each, once in a process.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace mscclpp {

struct NameRemark {
  std::string name;
  std::string text;  // a sentence: what it is, and what to do
};

// Pure. Of those that begin with MSCCLPP_, or with a misspelling of it, and that nothing reads.
std::vector<NameRemark> remarksOnNames(std::span<std::string const> names);

// All names that this process has.
std::vector<std::string> variableNames();

}  // namespace mscclpp
