// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "host/transport/verbs/verbs_device.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/format.hpp"
#include "mscclpp/host/env.hpp"

namespace mscclpp {
namespace {

std::string_view nameOf(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_DOWN:
      return "down";
    case IBV_PORT_INIT:
      return "initialising";
    case IBV_PORT_ARMED:
      return "armed";
    case IBV_PORT_ACTIVE:
      return "active";
    default:
      return "in an unknown state";
  }
}

class DeviceList {
 public:
  explicit DeviceList(Verbs const& verbs) : verbs_(verbs), list_(verbs.getDeviceList(&count_)) {}
  ~DeviceList() {
    if (list_ != nullptr) verbs_.freeDeviceList(list_);
  }
  DeviceList(DeviceList const&) = delete;
  DeviceList& operator=(DeviceList const&) = delete;

  std::vector<ibv_device*> all() const { return {list_, list_ + (list_ == nullptr ? 0 : count_)}; }

 private:
  Verbs const& verbs_;
  int count_ = 0;
  ibv_device** list_;
};

// Common leading parts of two devices' places in the PCI tree: the more, the nearer.
std::size_t nearness(std::string const& device, std::string const& busId) {
  if (busId.empty()) return 0;
  std::string lower = busId;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  std::error_code error;
  auto const a = std::filesystem::canonical("/sys/class/infiniband/" + device + "/device", error);
  if (error) return 0;
  auto const b = std::filesystem::canonical("/sys/bus/pci/devices/" + lower, error);
  if (error) return 0;
  auto const [endA, endB] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(std::distance(a.begin(), endA));
}

}  // namespace

std::vector<VerbsName> parseVerbsNames(std::string const& text) {
  std::vector<VerbsName> names;
  std::size_t at = 0;
  while (!text.empty() && at <= text.size()) {
    auto const comma = std::min(text.find(',', at), text.size());
    auto const one = text.substr(at, comma - at);
    at = comma + 1;
    VerbsName name;
    auto const colon = one.find(':');
    name.device = one.substr(0, colon);
    if (name.device.empty()) {
      fail(ErrorCode::invalidUsage, "MSCCLPP_IB_HCA=\"{}\": \"{}\" names no device; use mlx5_0 or mlx5_0:1,mlx5_1",
           text, one);
    }
    if (colon != std::string::npos) {
      name.port = static_cast<int>(parseInteger("MSCCLPP_IB_HCA", one.substr(colon + 1), 1, 255));
    }
    names.push_back(std::move(name));
  }
  return names;
}

int scoreOfGid(ibv_gid const& gid, bool ethernet, std::optional<bool> roceV2) {
  static constexpr std::array<std::uint8_t, 12> mapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (std::all_of(std::begin(gid.raw), std::end(gid.raw), [](std::uint8_t byte) { return byte == 0; })) return 0;
  if (!ethernet) return 1;
  int score = 1;
  // Version 2 is routed over IP. An IPv4 address is what administrators give; a link-local one ends at the next router.
  if (roceV2.value_or(false)) score += 4;
  if (std::equal(mapped.begin(), mapped.end(), std::begin(gid.raw))) {
    score += 2;
  } else if (gid.raw[0] != 0xfe) {
    score += 1;
  }
  return score;
}

VerbsDevice::VerbsDevice(ibv_device* device, std::optional<int> port, std::optional<int> gidIndex)
    : verbs_(Verbs::get()), name_(verbs_.getDeviceName(device)) {
  context_ = verbs_.openDevice(device);
  if (context_ == nullptr) {
    throwSystemError(fmt::format("InfiniBand: open device {}; check the rights on /dev/infiniband", name_), errno);
  }
  try {
    if (int const error = verbs_.queryDevice(context_, &attributes_); error != 0) {
      throwSystemError(fmt::format("InfiniBand: query device {}", name_), error);
    }
    choosePort(port);
    chooseGid(gidIndex);
    domain_ = verbs_.allocPd(context_);
    if (domain_ == nullptr) throwSystemError(fmt::format("InfiniBand: make a protection domain on {}", name_), errno);
  } catch (...) {
    close();
    throw;
  }
}

VerbsDevice::~VerbsDevice() { close(); }

void VerbsDevice::close() noexcept {
  if (domain_ != nullptr) verbs_.deallocPd(domain_);
  if (context_ != nullptr) verbs_.closeDevice(context_);
}

std::string VerbsDevice::describe() const { return fmt::format("{} port {}", name_, port_); }

void VerbsDevice::choosePort(std::optional<int> wanted) {
  int const ports = attributes_.phys_port_cnt;
  if (wanted && (*wanted < 1 || *wanted > ports)) {
    fail(ErrorCode::invalidUsage, "MSCCLPP_IB_HCA: device {} has ports 1 to {}, not {}", name_, ports, *wanted);
  }
  std::string states;
  for (int port = wanted.value_or(1); port <= wanted.value_or(ports); ++port) {
    portAttributes_ = {};
    if (int const error = verbs_.queryPort(context_, static_cast<std::uint8_t>(port), &portAttributes_); error != 0) {
      throwSystemError(fmt::format("InfiniBand: query port {} of {}", port, name_), error);
    }
    if (portAttributes_.state == IBV_PORT_ACTIVE) {
      port_ = port;
      return;
    }
    states += fmt::format("{}port {} is {}", states.empty() ? "" : ", ", port, nameOf(portAttributes_.state));
  }
  fail(ErrorCode::unsupported, "InfiniBand: device {} has no active port: {}", name_, states);
}

void VerbsDevice::chooseGid(std::optional<int> wanted) {
  int const count = portAttributes_.gid_tbl_len;
  if (wanted && (*wanted < 0 || *wanted >= count)) {
    fail(ErrorCode::invalidUsage, "MSCCLPP_IB_GID_INDEX={}: {} has GIDs 0 to {}", *wanted, describe(), count - 1);
  }
  int best = 0;
  for (int index = wanted.value_or(0); index < (wanted ? *wanted + 1 : count); ++index) {
    ibv_gid gid{};
    if (verbs_.queryGid(context_, static_cast<std::uint8_t>(port_), index, &gid) != 0) continue;
    std::optional<bool> roceV2;
    ibv_gid_entry entry{};
    if (verbs_.queryGidEx != nullptr &&
        verbs_.queryGidEx(context_, static_cast<std::uint32_t>(port_), static_cast<std::uint32_t>(index), &entry, 0,
                          sizeof entry) == 0) {
      roceV2 = entry.gid_type == IBV_GID_TYPE_ROCE_V2;
    }
    int const score = scoreOfGid(gid, ethernet(), roceV2);
    if (score <= best) continue;
    best = score;
    gid_ = gid;
    gidIndex_ = index;
  }
  if (best == 0 && (ethernet() || wanted)) {
    fail(ErrorCode::unsupported, "InfiniBand: {} has no GID{}; give its network interface an address", describe(),
         wanted ? fmt::format(" {}", *wanted) : std::string());
  }
}

std::vector<std::shared_ptr<VerbsDevice>> chooseVerbsDevices(VerbsChoice const& choice) {
  Verbs const& verbs = Verbs::get();
  DeviceList const list(verbs);
  auto const all = list.all();
  auto const wanted = parseVerbsNames(choice.devices);
  std::string there;
  for (auto* const device : all) {
    if (!there.empty()) there += ", ";
    there += verbs.getDeviceName(device);
  }
  if (there.empty()) there = "none";
  std::vector<std::shared_ptr<VerbsDevice>> found;
  for (auto const& name : wanted) {
    auto const at = std::find_if(all.begin(), all.end(),
                                 [&](ibv_device* device) { return verbs.getDeviceName(device) == name.device; });
    if (at == all.end()) {
      fail(ErrorCode::invalidUsage, "MSCCLPP_IB_HCA=\"{}\": there is no device {}; this host has: {}", choice.devices,
           name.device, there);
    }
    found.push_back(std::make_shared<VerbsDevice>(*at, name.port, choice.gidIndex));
  }
  if (!wanted.empty()) return found;  // all that were asked for, in that order
  std::string reasons;
  for (auto* const device : all) {
    try {
      found.push_back(std::make_shared<VerbsDevice>(device, std::nullopt, choice.gidIndex));
    } catch (Error const& error) {
      reasons += fmt::format("; {}", error.what());
    }
  }
  if (found.empty()) {
    fail(ErrorCode::unsupported, "InfiniBand: no device of this host can be used ({}){}", there, reasons);
  }
  std::stable_sort(found.begin(), found.end(), [&](auto const& a, auto const& b) {
    return nearness(a->name(), choice.nearBusId) > nearness(b->name(), choice.nearBusId);
  });
  auto const nearest = nearness(found.front()->name(), choice.nearBusId);
  auto const equals = std::count_if(found.begin(), found.end(), [&](auto const& device) {
    return nearness(device->name(), choice.nearBusId) == nearest;
  });
  std::rotate(found.begin(), found.begin() + choice.place % equals, found.begin() + equals);
  found.resize(std::min<std::size_t>(found.size(), static_cast<std::size_t>(choice.rails)));
  return found;
}

std::string verbsDevicesMissing() {
  if (Verbs::find() == nullptr) return Verbs::problem();
  static std::string const reason = [] {
    try {
      VerbsChoice choice;
      choice.devices = environment().ibDevices;
      chooseVerbsDevices(choice);
      return std::string();
    } catch (Error const& error) {
      return std::string(error.what());
    }
  }();
  return reason;
}

}  // namespace mscclpp
