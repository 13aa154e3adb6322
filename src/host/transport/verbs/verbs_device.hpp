// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One port of an RDMA device, opened, with the address that peers shall use. Ends with the last that holds it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/transport/verbs/verbs_library.hpp"

namespace mscclpp {

// A device as MSCCLPP_IB_HCA names it.
struct VerbsName {
  std::string device;
  std::optional<int> port;
};
// "mlx5_0,mlx5_1:2"; throws invalidUsage naming the setting.
std::vector<VerbsName> parseVerbsNames(std::string const& text);

// How useful a GID is to reach other hosts; 0: not at all.
int scoreOfGid(ibv_gid const& gid, bool ethernet, std::optional<bool> roceV2);

class VerbsDevice {
 public:
  VerbsDevice(ibv_device* device, std::optional<int> port, std::optional<int> gidIndex);
  ~VerbsDevice();
  VerbsDevice(VerbsDevice const&) = delete;
  VerbsDevice& operator=(VerbsDevice const&) = delete;

  std::string const& name() const noexcept { return name_; }
  int port() const noexcept { return port_; }
  int gidIndex() const noexcept { return gidIndex_; }
  ibv_gid const& gid() const noexcept { return gid_; }
  bool ethernet() const noexcept { return portAttributes_.link_layer == IBV_LINK_LAYER_ETHERNET; }
  bool atomics() const noexcept { return attributes_.atomic_cap != IBV_ATOMIC_NONE; }
  ibv_device_attr const& attributes() const noexcept { return attributes_; }
  ibv_port_attr const& portAttributes() const noexcept { return portAttributes_; }
  ibv_context* context() const noexcept { return context_; }
  ibv_pd* domain() const noexcept { return domain_; }
  // "mlx5_0 port 1"
  std::string describe() const;

 private:
  void choosePort(std::optional<int> wanted);
  void chooseGid(std::optional<int> wanted);
  void close() noexcept;

  Verbs const& verbs_;
  std::string name_;
  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
  ibv_device_attr attributes_{};
  ibv_port_attr portAttributes_{};
  int port_ = 0;
  int gidIndex_ = 0;
  ibv_gid gid_{};
};

struct VerbsChoice {
  std::string devices;          // names as in MSCCLPP_IB_HCA; empty: all with an active port
  std::optional<int> gidIndex;  // empty: chosen
  int rails = 1;                // devices used together
  std::string nearBusId;        // PCI address of the GPU; empty: unknown
  int place = 0;                // where several are equally near, the ranks of a host take different ones
};
// Those to be used, best first. Throws unsupported, with what there is, where none can be used.
std::vector<std::shared_ptr<VerbsDevice>> chooseVerbsDevices(VerbsChoice const& choice);
// Why there is none; empty where there is one.
std::string verbsDevicesMissing();

}  // namespace mscclpp
