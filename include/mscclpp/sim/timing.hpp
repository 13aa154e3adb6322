// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The figures of a machine from which a timed run (RunOptions::timing) tells how long kernels would take there.
//
// Every thread has a clock of its own. An access moves it by `issue` and `arithmetic`; a value that was loaded is there
// a round trip later, for which the thread waits where it next stores, fences, meets others or ends a wait; a store is
// seen by others after its latency, and whoever waits for it goes on no earlier. Bytes take their turn at the
// multiprocessor, at memory and at the links. Kernels begin where those ahead in the stream, or their programmatic
// overlap, let them, as in a graph: that the host launches them takes no time.
//
// Accesses that are plain C++ are seen in programs that are compiled for the checker (mscclpp::check); elsewhere they
// take no time.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace mscclpp::sim {

// Times in nanoseconds, rates in bytes per nanosecond (GB/s).
struct TimingModel {
  std::string device = "NVIDIA H200";
  int multiprocessors = 132;

  double issue = 3.6;      // from an access of a thread to its next
  double arithmetic = 40;  // between them: addresses, conversions, sums. The only figure that is fitted, not measured
  double nearRound = 198;  // load, or answer of an update or a store, of the device's own memory
  double farRound = 882;   // of a peer's
  double nearStore = 58;   // until others on the device see it
  double farStore = 424;   // until the peer sees it
  double hostRound = 1500;
  double hostStore = 800;
  double sharedRound = 20;   // of the memory that a block shares
  double fence = 587;        // at least, if the answers that it waits for do not take longer; system scope
  double deviceFence = 137;  // likewise, device scope
  double barrier = 17.7;     // of a block
  double warp = 16.5;        // of lanes
  double cluster = 196;
  double start = 102;       // from the end of the kernel ahead until a kernel's first access
  double overlap = 291;     // the same, from where the kernel ahead allows it
  double end = 582;         // from a kernel's last access until the next one knows
  double endDoubling = 10;  // longer for each doubling of its blocks
  double inFlight = 500;    // how far a thread runs ahead of the bytes that it stores or loads

  double multiprocessorLoadRate = 116;
  double multiprocessorStoreRate = 63;
  double memoryRate = 2094;  // each way
  double storeRate = 366;    // out of one device and into one, of data that is stored to a peer
  double loadRate = 327;     // of data that is loaded from one

  double copyStart = 2500;  // a copy or a signal of a copy engine, until it is seen
  double copyRate = 379;

  // Between nodes (MachineOptions::devicesPerNode), which copy engines alone reach.
  double networkStart = 5000;  // in place of copyStart
  double networkRate = 48;     // out of one device and into one

  // Of the NVIDIA H200, measured; docs/virtual_time.md says how.
  static TimingModel h200() { return {}; }

  // Throws invalidUsage that names `source`, the first figure that no machine has, and its range.
  void check(std::string const& source) const;

  // The JSON that mscclpp-bench-timing writes. Throw invalidUsage that names `source`, the figure, what is there and
  // what is allowed.
  static TimingModel parse(std::string_view json, std::string const& source);
  static TimingModel load(std::string const& path);
  std::string json() const;

  friend bool operator==(TimingModel const&, TimingModel const&) = default;
};

// A figure's name in the JSON, and the member that it is.
struct TimingFigure {
  // An alias, for nvcc writes a plain declarator out with parentheses that g++ warns of.
  using Member = double TimingModel::*;
  std::string_view name;
  Member member;
  bool isRate = false;  // bytes a nanosecond, and more than 0
};
inline constexpr std::array timingFigures{
    TimingFigure{"issue_ns", &TimingModel::issue},
    TimingFigure{"arithmetic_ns", &TimingModel::arithmetic},
    TimingFigure{"near_round_ns", &TimingModel::nearRound},
    TimingFigure{"far_round_ns", &TimingModel::farRound},
    TimingFigure{"near_store_ns", &TimingModel::nearStore},
    TimingFigure{"far_store_ns", &TimingModel::farStore},
    TimingFigure{"host_round_ns", &TimingModel::hostRound},
    TimingFigure{"host_store_ns", &TimingModel::hostStore},
    TimingFigure{"shared_round_ns", &TimingModel::sharedRound},
    TimingFigure{"fence_ns", &TimingModel::fence},
    TimingFigure{"device_fence_ns", &TimingModel::deviceFence},
    TimingFigure{"barrier_ns", &TimingModel::barrier},
    TimingFigure{"warp_ns", &TimingModel::warp},
    TimingFigure{"cluster_ns", &TimingModel::cluster},
    TimingFigure{"start_ns", &TimingModel::start},
    TimingFigure{"overlap_ns", &TimingModel::overlap},
    TimingFigure{"end_ns", &TimingModel::end},
    TimingFigure{"end_doubling_ns", &TimingModel::endDoubling},
    TimingFigure{"in_flight_ns", &TimingModel::inFlight},
    TimingFigure{"copy_start_ns", &TimingModel::copyStart},
    TimingFigure{"network_start_ns", &TimingModel::networkStart},
    TimingFigure{"multiprocessor_load_gbps", &TimingModel::multiprocessorLoadRate, true},
    TimingFigure{"multiprocessor_store_gbps", &TimingModel::multiprocessorStoreRate, true},
    TimingFigure{"memory_gbps", &TimingModel::memoryRate, true},
    TimingFigure{"store_gbps", &TimingModel::storeRate, true},
    TimingFigure{"load_gbps", &TimingModel::loadRate, true},
    TimingFigure{"copy_gbps", &TimingModel::copyRate, true},
    TimingFigure{"network_gbps", &TimingModel::networkRate, true}};

}  // namespace mscclpp::sim
