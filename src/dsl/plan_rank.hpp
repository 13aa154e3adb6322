// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A rank of a plan as JSON: the forms of its operations, and the numbers that they give to channels and remote buffers.
// What the operations are is for the writers to say.
#pragma once

#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "mscclpp/dsl/core/program.hpp"

namespace mscclpp::dsl {

using Json = nlohmann::ordered_json;

class RankPlan {
 public:
  RankPlan(Program const& program, int rank)
      : program_(program), rank_(rank), mine_(program.ranks[static_cast<std::size_t>(rank)]) {}

  // Things are numbered when they are first met in a step or an operation: remote buffers for the whole rank, and all
  // once more for the block that has begun last.
  void beginBlock() { channels_ = buffers_ = {}; }
  void meetBuffers(Step const& step);
  void meet(Step const& step);

  // A step that moves no data.
  Json order(Step const& step);
  Json move(std::string_view name, Step const& step, std::vector<Chunks> const& sources,
            std::vector<Chunks> const& targets, bool namesChannels);
  Json switchMove(std::string_view name, Step const& step);
  static Json loop(Step const& begin, Json operations);

  Json block(int id, Json operations) const;
  Json whole(Json blocks) const;

 private:
  struct RemoteBuffer {
    int rank;
    BufferKind buffer;
    std::vector<ChannelKind> links;
  };
  // What a block uses, by the kind of channel, both in the order of first use.
  struct Used {
    std::vector<ChannelKind> kinds;
    std::vector<int> ids[3];

    int numberOf(ChannelKind kind, int id);
    Json list(char const* kind, char const* ids) const;
  };

  int place(int channel) const;
  Json channels() const;
  Json channelIds(std::vector<int> const& channels);
  int remoteBuffer(Chunks const& chunks, ChannelKind link);
  Json chunk(Chunks const& chunks, ChannelKind link);
  Json list(std::vector<Chunks> const& all, ChannelKind link);
  bool anyRemote(std::vector<Chunks> const& all) const;

  Program const& program_;
  int rank_;
  RankProgram const& mine_;
  std::vector<RemoteBuffer> remotes_;
  Used channels_, buffers_;
};

// The operation that combines the sources of a step of `rank` into its targets; empty where the format has none.
std::string_view reductionName(Step const& step, int rank);
// The same of a switch of so many ranks: their chunks into one, one into theirs, or both.
std::string_view switchName(Step const& step, std::size_t ranks);

// The whole plan.
Json planOf(Program const& program, Json ranks);

}  // namespace mscclpp::dsl
