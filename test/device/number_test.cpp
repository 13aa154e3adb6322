// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The small float formats: known values, and the device's conversions against the integer codec, code by code.
#include "mscclpp/device/number.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "mscclpp/device/group.hpp"
#include "support/reference.hpp"
#include "support/world.hpp"

using namespace mscclpp_test;

static_assert(BFloat16(1.0f).bits == 0x3f80 && static_cast<float>(BFloat16::fromBits(0x4049)) == 3.140625f);
static_assert(Half(65504.0f).bits == 0x7bff && Half(65520.0f).bits == 0x7c00 && Half(0x1p-24f).bits == 1);
static_assert(Half(0x1p-25f).bits == 0 && Half(0x1.8p-25f).bits == 1, "ties go to even, below the smallest too");
static_assert(Half(1.0f + 0x1p-11f).bits == 0x3c00 && Half(1.0f + 0x3p-11f).bits == 0x3c02, "ties go to even");
static_assert(Float8E4M3(448.0f).bits == 0x7e && Float8E4M3(1e9f).bits == 0x7e && Float8E4M3(-1e9f).bits == 0xfe);
static_assert(Float8E5M2(57344.0f).bits == 0x7b && Float8E5M2(1e9f).bits == 0x7b);
static_assert(static_cast<float>(Float8E4M3::fromBits(0x01)) == 0x1p-9f);
static_assert(std::is_same_v<DefaultAccumulator<BFloat16>, float> &&
              std::is_same_v<DefaultAccumulator<double>, double>);
static_assert(std::is_same_v<DefaultAccumulator<std::int8_t>, std::int32_t>);
static_assert(sizeof(Half) == 2 && sizeof(Float8E4M3) == 1);

namespace {

struct ConvertKernel {
  template <class F, class Bits>
  MSCCLPP_DEVICE static void codes(SmallFloat<F, Bits> const*, float* decoded, std::uint32_t* again, unsigned count) {
    for (unsigned i = thisGrid().rank(); i < count; i += thisGrid().size()) {
      decoded[i] = static_cast<float>(SmallFloat<F, Bits>::fromBits(static_cast<Bits>(i)));
      again[i] = SmallFloat<F, Bits>(decoded[i]).bits;
    }
  }
};

template <class S>
struct DecodeKernel {
  MSCCLPP_DEVICE void operator()(float* decoded, std::uint32_t* again, unsigned count) const {
    ConvertKernel::codes(static_cast<S const*>(nullptr), decoded, again, count);
  }
};

template <class S>
struct EncodeKernel {
  MSCCLPP_DEVICE void operator()(float const* values, std::uint32_t* codes, unsigned count) const {
    for (unsigned i = thisGrid().rank(); i < count; i += thisGrid().size()) codes[i] = S(values[i]).bits;
  }
};

template <class S>
struct FormatOf;
template <class F, class Bits>
struct FormatOf<SmallFloat<F, Bits>> {
  using type = F;
};

bool sameFloat(float a, float b) { return (std::isnan(a) && std::isnan(b)) || std::memcmp(&a, &b, sizeof a) == 0; }

}  // namespace

TEST_CASE_TEMPLATE("device conversions agree with the codec", S, Half, BFloat16, Float8E4M3, Float8E5M2) {
  if (!canRun(1)) return;
  using Format = typename FormatOf<S>::type;
  forEachRank(1, [&](Rank& rank) {
    unsigned const codes = 1u << (8 * sizeof(S));
    GpuBuffer<float> decoded(rank.device, codes);
    GpuBuffer<std::uint32_t> again(rank.device, codes);
    launch(rank.stream, {.blocks = 2, .threads = 64}, DecodeKernel<S>{}, decoded.data(), again.data(), codes);
    rank.synchronize();
    auto const values = copyToHost(decoded);
    auto const back = copyToHost(again);
    std::size_t wrong = 0;
    for (unsigned code = 0; code < codes; ++code) {
      auto const value = decodeSmallFloat<Format>(code);
      if (!sameFloat(values[code], value)) ++wrong;
      // Infinity saturates in FP8, and NaN has many codes; everything else comes back as it was.
      if (!std::isnan(value) && !(std::isinf(value) && Format::saturate) && back[code] != code) ++wrong;
      if (std::isnan(value) && !std::isnan(decodeSmallFloat<Format>(back[code]))) ++wrong;
    }
    CHECK(wrong == 0);

    // Floats of all magnitudes, and the neighbourhood of each rounding boundary.
    std::mt19937 engine(11);
    std::vector<float> inputs{0.0f, -0.0f, std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::max(),
                              std::numeric_limits<float>::denorm_min()};
    for (unsigned i = 0; i < 20000; ++i) {
      auto const value = bitCast<float>(static_cast<std::uint32_t>(engine()));
      if (!std::isnan(value)) inputs.push_back(value);
      auto const exact = decodeSmallFloat<Format>(engine() % codes);
      if (std::isfinite(exact)) {
        auto const next = std::nextafter(exact, 1e30f);
        inputs.insert(inputs.end(), {next, (exact + decodeSmallFloat<Format>((engine() + 1) % codes)) / 2});
        if (std::isnan(inputs.back())) inputs.pop_back();
      }
    }
    GpuBuffer<float> in(rank.device, inputs.size());
    GpuBuffer<std::uint32_t> out(rank.device, inputs.size());
    copyToDevice(in, std::span<float const>(inputs));
    launch(rank.stream, {.blocks = 2, .threads = 64}, EncodeKernel<S>{}, in.data(), out.data(),
           static_cast<unsigned>(inputs.size()));
    rank.synchronize();
    auto const encoded = copyToHost(out);
    std::size_t different = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (encoded[i] != encodeSmallFloat<Format>(inputs[i])) ++different;
    }
    CHECK(different == 0);
  });
}

TEST_CASE("the codec rounds to the nearest value") {
  // Against all neighbours, by exhaustive search in the smallest format.
  for (unsigned code = 0; code < 0x7e; ++code) {
    float const low = decodeSmallFloat<Float8E4M3Format>(code);
    float const high = decodeSmallFloat<Float8E4M3Format>(code + 1);
    float const middle = (low + high) / 2;
    CHECK(encodeSmallFloat<Float8E4M3Format>(std::nextafter(middle, 0.0f)) == code);
    CHECK(encodeSmallFloat<Float8E4M3Format>(std::nextafter(middle, 1e9f)) == code + 1);
    CHECK(encodeSmallFloat<Float8E4M3Format>(middle) == (code % 2 == 0 ? code : code + 1));
  }
}
