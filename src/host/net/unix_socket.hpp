// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Abstract unix sockets between processes of one user on one host. They have a name but no file, and vanish with their
// owner. Anybody may connect to them, so both ends look at the other's user id.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>

#include "base/deadline.hpp"
#include "base/file_handle.hpp"

namespace mscclpp {

// errno's value in `error` where the result is empty.
FileHandle listenUnix(std::string const& name, int& error);
FileHandle connectUnix(std::string const& name, int& error);

// True where the other end runs as this process's user.
bool sameUser(int socket);

// One byte and the descriptor. 0, or errno's value.
int sendDescriptor(int socket, int descriptor);
// Empty, with `error` set (ENOMSG: the message held none), where none came.
FileHandle recvDescriptor(int socket, Deadline const& deadline, int& error);

}  // namespace mscclpp
