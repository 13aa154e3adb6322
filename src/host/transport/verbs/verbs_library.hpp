// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// libibverbs, opened when it is first needed, so that programs run on machines without it. The functions that
// <infiniband/verbs.h> defines inline (posting and polling) need no library.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

namespace mscclpp {

struct Verbs {
  decltype(&::ibv_get_device_list) getDeviceList;
  decltype(&::ibv_free_device_list) freeDeviceList;
  decltype(&::ibv_get_device_name) getDeviceName;
  decltype(&::ibv_open_device) openDevice;
  decltype(&::ibv_close_device) closeDevice;
  decltype(&::ibv_query_device) queryDevice;
  int (*queryPort)(ibv_context*, std::uint8_t, ibv_port_attr*);
  decltype(&::ibv_query_gid) queryGid;
  decltype(&::ibv_alloc_pd) allocPd;
  decltype(&::ibv_dealloc_pd) deallocPd;
  ibv_mr* (*regMr)(ibv_pd*, void*, std::size_t, int);
  decltype(&::ibv_dereg_mr) deregMr;
  decltype(&::ibv_create_cq) createCq;
  decltype(&::ibv_destroy_cq) destroyCq;
  decltype(&::ibv_create_qp) createQp;
  decltype(&::ibv_modify_qp) modifyQp;
  decltype(&::ibv_destroy_qp) destroyQp;
  decltype(&::ibv_wc_status_str) wcStatusStr;
  // Of newer libraries; may be null.
  decltype(&::_ibv_query_gid_ex) queryGidEx;
  decltype(&::ibv_reg_dmabuf_mr) regDmabufMr;

  // Null where it cannot be opened; verbsProblem() then says why.
  static Verbs const* find();
  // Throws unsupported.
  static Verbs const& get();
  static std::string problem();
};

}  // namespace mscclpp
