// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/transport/verbs/verbs_library.hpp"

#include <dlfcn.h>

#include <optional>

#include "base/format.hpp"

namespace mscclpp {
namespace {

struct Loaded {
  std::optional<Verbs> verbs;
  std::string problem;

  Loaded() {
    void* const library = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      problem = fmt::format("libibverbs.so.1 cannot be opened ({}); install rdma-core's libibverbs", ::dlerror());
      return;
    }
    Verbs found{};
    auto const look = [&](auto& function, char const* name, bool needed = true) {
      auto* const symbol = ::dlsym(library, name);
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
      if (symbol == nullptr && needed && problem.empty()) {
        problem = fmt::format("libibverbs.so.1 has no {}; it is too old", name);
      }
    };
    look(found.getDeviceList, "ibv_get_device_list");
    look(found.freeDeviceList, "ibv_free_device_list");
    look(found.getDeviceName, "ibv_get_device_name");
    look(found.openDevice, "ibv_open_device");
    look(found.closeDevice, "ibv_close_device");
    look(found.queryDevice, "ibv_query_device");
    look(found.queryPort, "ibv_query_port");
    look(found.queryGid, "ibv_query_gid");
    look(found.allocPd, "ibv_alloc_pd");
    look(found.deallocPd, "ibv_dealloc_pd");
    look(found.regMr, "ibv_reg_mr");
    look(found.deregMr, "ibv_dereg_mr");
    look(found.createCq, "ibv_create_cq");
    look(found.destroyCq, "ibv_destroy_cq");
    look(found.createQp, "ibv_create_qp");
    look(found.modifyQp, "ibv_modify_qp");
    look(found.destroyQp, "ibv_destroy_qp");
    look(found.wcStatusStr, "ibv_wc_status_str");
    look(found.queryGidEx, "_ibv_query_gid_ex", false);
    look(found.regDmabufMr, "ibv_reg_dmabuf_mr", false);
    if (problem.empty()) verbs = found;
  }
};

Loaded const& loaded() {
  static Loaded const instance;
  return instance;
}

}  // namespace

Verbs const* Verbs::find() { return loaded().verbs ? &*loaded().verbs : nullptr; }

Verbs const& Verbs::get() {
  if (!loaded().verbs) fail(ErrorCode::unsupported, "InfiniBand: {}", loaded().problem);
  return *loaded().verbs;
}

std::string Verbs::problem() { return loaded().problem; }

}  // namespace mscclpp
