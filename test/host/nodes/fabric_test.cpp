// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What joins hosts by NVLink, against libraries in the place of the CUDA driver and of NVIDIA's management library, and
// which ranks are one domain by it. No GPU is needed.
#include <doctest/doctest.h>

#include <dlfcn.h>

#include <string>
#include <vector>

#include "host/core/domains.hpp"
#include "host/cuda/fabric_driver.hpp"
#include "host/ranks.hpp"
#include "mscclpp/base/config.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

template <class Function>
Function* functionOf(char const* library, char const* name) {
  auto* const found = reinterpret_cast<Function*>(::dlsym(::dlopen(library, RTLD_NOW), name));
  bool const there = found != nullptr;
  REQUIRE_MESSAGE(there, "the fake libraries are not there: start the test by ctest, which sets their path");
  return found;
}
int left() { return functionOf<int()>("libcuda.so.1", "fakeDriverLeft")(); }
void supportFabric(bool supported) { functionOf<void(int)>("libcuda.so.1", "fakeDriverFabric")(supported ? 1 : 0); }
void tell(int state, int status, int cluster, unsigned clique) {
  functionOf<void(int, int, int, unsigned)>("libnvidia-ml.so.1", "fakeManagementTell")(state, status, cluster, clique);
}

// The next calls of that function fail.
class Failing {
 public:
  explicit Failing(char const* name) { fail(name); }
  ~Failing() { fail(""); }

 private:
  static void fail(char const* name) { functionOf<void(char const*, int)>("libcuda.so.1", "fakeDriverFail")(name, 0); }
};

constexpr int completed = 3;
constexpr char const* busId = "0000:17:00.0";

std::string whyNot() {
  std::string why;
  bool const joined(driverCliqueOf(0, busId, why));
  CHECK(joined == why.empty());
  return why;
}

bool contains(std::string const& text, char const* part) { return text.find(part) != std::string::npos; }

FabricClique clique(std::uint8_t cluster, std::uint32_t number = 1) {
  FabricClique made{.clique = number};
  made.cluster.fill(cluster);
  return made;
}

// The domains of ranks that are so told of: host, clique.
std::vector<int> domains(std::vector<std::pair<int, FabricClique>> const& ranks) {
  std::vector<RankPlace> places;
  places.reserve(ranks.size());
  for (auto const& [host, of] : ranks) places.push_back({static_cast<std::uint64_t>(host), 0, of});
  return domainsOf(places);
}

}  // namespace

TEST_CASE("a GPU is of a clique where everything that must be is asked for and there") {
  tell(completed, 0, 7, 5);
  CHECK(whyNot().empty());
  std::string why;
  CHECK(driverCliqueOf(1, busId, why) == clique(7, 5));
  CHECK(left() == 0);
}

TEST_CASE("a GPU that is of none says why") {
  struct {
    int state, status, cluster;
    unsigned clique;
    char const* words;
  } const cases[]{
      {0, 0, 7, 5, "it has no fabric"},           {1, 0, 7, 5, "has not ended"},      {2, 0, 7, 5, "has not ended"},
      {completed, 3, 7, 5, "NVML error 3"},       {completed, 0, 0, 5, "no cluster"}, {completed, 0, 7, 0, "no clique"},
      {200, 0, 7, 5, "does not tell of a fabric"}};
  for (auto const& each : cases) {
    CAPTURE(each.words);
    tell(each.state, each.status, each.cluster, each.clique);
    CHECK(contains(whyNot(), each.words));
  }
  tell(completed, 0, 7, 5);
  CHECK(contains(whyNoFabric(askFabricState(""), true), "does not tell of a fabric"));
  supportFabric(false);
  CHECK(contains(whyNot(), "the driver has no fabric handles"));
  supportFabric(true);
  // As where no service lets the process take part.
  for (auto const* refused : {"cuMemCreate", "cuMemExportToShareableHandle"}) {
    Failing const failing(refused);
    auto const text = whyNot();
    CHECK(contains(text, "CUDA_ERROR_NOT_SUPPORTED"));
    CHECK(contains(text, "nvidia-imex"));
    CHECK(contains(text, fabricChannels));
  }
  CHECK(left() == 0);
}

TEST_CASE("memory goes by a handle that any process of the clique opens") {
  int memory = 0;
  {
    Failing const failing("cuMemRetainAllocationHandle");  // as for memory of cudaMalloc
    CHECK_FALSE(driverExportFabric(&memory).has_value());
  }
  {
    Failing const failing("cuMemExportToShareableHandle");  // as for memory that asked for no such handle
    CHECK_FALSE(driverExportFabric(&memory).has_value());
  }
  auto const handle = driverExportFabric(&memory);
  REQUIRE(handle.has_value());
  CHECK(left() == 0);
  // Its owner has let go of it.
  auto const error = errorOf([&] { (void)driverImportFabric(*handle, 3, 4096); });
  REQUIRE(error.has_value());
  CHECK(error->code() == ErrorCode::deviceError);
  for (auto const* word : {"map 4096 bytes", "CUDA device 3", "CUDA_ERROR_INVALID_VALUE", "nvidia-imex", fabricChannels,
                           "MSCCLPP_FABRIC=0"}) {
    CHECK_MESSAGE(mentions(error, word), word);
  }
}

TEST_CASE("hosts are one domain where all their ranks are of one clique") {
  auto const a = clique(1), b = clique(2), none = FabricClique{};
  CHECK(domains({{1, none}, {1, none}, {2, none}, {2, none}}) == std::vector{0, 0, 2, 2});
  CHECK(domains({{1, a}, {1, a}, {2, a}, {2, a}, {3, a}}) == std::vector{0, 0, 0, 0, 0});
  CHECK(domains({{1, a}, {2, b}, {3, a}, {4, b}, {5, none}}) == std::vector{0, 1, 0, 1, 4});
  CHECK(domains({{1, a}, {2, clique(1, 2)}}) == std::vector{0, 1});
  // Of three ranks no one may reach two that do not reach each other.
  CHECK(domains({{1, a}, {1, none}, {2, a}, {3, a}}) == std::vector{0, 0, 2, 2});
  CHECK(domains({{1, a}, {1, b}, {2, a}, {2, a}}) == std::vector{0, 0, 2, 2});
  CHECK(domains({{1, {.clique = 1}}, {2, {.clique = 1}}}) == std::vector{0, 1});
}

TEST_CASE("nodes of a machine are hosts of their own") {
  auto const a = clique(1);
  std::vector<RankPlace> places{{9, 0, {}}, {9, 1, {}}, {9, 1, {}}};
  CHECK(domainsOf(places) == std::vector{0, 1, 1});
  for (auto& each : places) each.clique = a;
  CHECK(domainsOf(places) == std::vector{0, 0, 0});
}

TEST_CASE("a domain has as many ranks as a team") {
  for (int const ranks : {maxTeamSize, maxTeamSize + 1}) {
    std::vector<std::pair<int, FabricClique>> all;
    all.reserve(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) all.emplace_back(rank / 4, clique(1));
    auto const found = domains(all);
    CHECK(found.back() == (ranks == maxTeamSize ? 0 : (ranks - 1) / 4 * 4));
  }
}
