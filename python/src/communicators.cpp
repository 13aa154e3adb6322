// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bindings.hpp"
#include "host/bootstrap/bootstrap_access.hpp"
#include "mscclpp/host/bootstrap/local_bootstrap.hpp"
#include "mscclpp/host/bootstrap/tcp_bootstrap.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/launcher.hpp"

namespace mscclpp::python {
namespace {

using Seconds = std::optional<double>;

std::optional<std::chrono::nanoseconds> durationOf(Seconds seconds) {
  if (!seconds) return {};
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(*seconds));
}

std::shared_ptr<Bootstrap> join(int rank, int size, std::string const& address, Seconds timeout) {
  auto bootstrap = std::make_shared<TcpBootstrap>(rank, size);
  bootstrap->initialize(address, durationOf(timeout));
  return bootstrap;
}

std::shared_ptr<Bootstrap> joinById(int rank, int size, std::string const& id, Seconds timeout) {
  auto bootstrap = std::make_shared<TcpBootstrap>(rank, size);
  bootstrap->initialize(UniqueId::fromString(id), durationOf(timeout));
  return bootstrap;
}

// The stream of calls that name none, on the simulated machine.
struct DefaultStream {
  Stream stream;
  explicit DefaultStream(Communicator const& communicator) : stream(communicator.device()) {}
};

}  // namespace

CallStream::CallStream(Communicator const& communicator, std::uintptr_t handle) {
  if (handle == 0 && communicator.device().kind == DeviceKind::sim) {
    own_ = &communicator.attached<DefaultStream>().stream;
  } else {
    borrowed_.emplace(Stream::borrow(communicator.device(), pointerOf(handle)));
  }
}

void CallStream::finish(Communicator const& communicator) const {
  if (own_ != nullptr) communicator.synchronize(*own_);
}

void bindCommunicators(nb::module_& module) {
  nb::class_<Bootstrap>(module, "Bootstrap", "How ranks exchange messages of the host.")
      .def_prop_ro("rank", [](Bootstrap const& self) { return self.getRank(); })
      .def_prop_ro("size", [](Bootstrap const& self) { return self.getNranks(); })
      .def_prop_ro("ranks_per_node", [](Bootstrap const& self) { return self.getNranksPerNode(); })
      .def(
          "send",
          [](Bootstrap& self, nb::bytes const& data, int peer, int tag) {
            std::vector<char> const copy(data.c_str(), data.c_str() + data.size());
            nb::gil_scoped_release const released;
            self.send(copy, peer, tag);
          },
          nb::arg("data"), nb::arg("peer"), nb::arg("tag") = 0)
      .def(
          "recv",
          [](Bootstrap& self, int peer, int tag) {
            std::vector<char> data;
            {
              nb::gil_scoped_release const released;
              self.recv(data, peer, tag);
            }
            return nb::bytes(data.data(), data.size());
          },
          nb::arg("peer"), nb::arg("tag") = 0, "The bytes that `peer` sent.")
      .def("barrier", &Bootstrap::barrier, WithoutGil())
      .def("declare_lost", &BootstrapAccess::declareLost, nb::arg("reason"), WithoutGil(),
           "This rank takes part in nothing any more: the others hear of it as of one that has died.");

  module.def("join", &join, nb::arg("rank"), nb::arg("size"), nb::arg("address"), nb::arg("timeout") = nb::none(),
             WithoutGil(), "Ranks meet at an address: ip:port, [ipv6]:port or interface:ip:port. Collective; seconds.");
  module.def("join_by_id", &joinById, nb::arg("rank"), nb::arg("size"), nb::arg("id"), nb::arg("timeout") = nb::none(),
             WithoutGil(), "Ranks meet by what create_unique_id() returned on one of them. Collective; seconds.");
  module.def(
      "create_unique_id", [] { return TcpBootstrap::createUniqueId().toString(); }, WithoutGil());
  module.def(
      "join_launched", [](Seconds timeout) { return bootstrapFromEnvironment(durationOf(timeout)); },
      nb::arg("timeout") = nb::none(), WithoutGil(),
      "The ranks that torchrun, mpirun or srun has started meet. Collective; seconds.");
  module.def(
      "local_bootstraps", [](int ranks) { return LocalBootstrap::create(ranks); }, nb::arg("ranks"),
      "For ranks that are threads of this process.");

  nb::class_<Communicator>(module, "Communicator",
                           "One rank's side of a group of ranks. Making one is collective over the bootstrap.")
      .def(nb::init<std::shared_ptr<Bootstrap>, Device>(), nb::arg("bootstrap"), nb::arg("device"), WithoutGil())
      .def_prop_ro("rank", &Communicator::rank)
      .def_prop_ro("size", &Communicator::size)
      .def_prop_ro("device", &Communicator::device)
      .def_prop_ro("bootstrap", &Communicator::bootstrap)
      .def(
          "synchronize",
          [](Communicator const& self, std::uintptr_t stream, Seconds limit) {
            CallStream const in(self, stream);
            self.synchronize(*in, durationOf(limit));
          },
          nb::arg("stream") = 0, nb::arg("limit") = nb::none(), WithoutGil(),
          "Waits for the stream, at most `limit` seconds, and raises what kernels of this rank have reported.")
      .def("check_reports", &Communicator::checkReports, WithoutGil(),
           "Raises what kernels of this rank have reported since the last call. Kernels must have ended.")
      .def("abort", &Communicator::abort, "Ends the waits of this rank's kernels, now and from now on.")
      .def(
          "fault",
          [](Communicator const& self) -> std::optional<std::string> {
            auto const error = self.fault();
            return error ? std::optional<std::string>(error->what()) : std::nullopt;
          },
          "What has ended this communicator for good, as a sentence, or None.")
      .def(
          "set_time_limit", [](Communicator const& self, double seconds) { self.setTimeLimit(*durationOf(seconds)); },
          nb::arg("seconds"), "Of one wait inside a kernel; 0: none.")
      .def("survivors", &Communicator::survivors, WithoutGil(),
           "After a failure: the ranks that are left. Collective over them.")
      .def(
          "shrink",
          [](Communicator const& self, std::vector<int> const& ranks) {
            return std::shared_ptr<Communicator>(self.shrink(ranks));
          },
          nb::arg("ranks"), WithoutGil(), "A communicator of these ranks. Collective over them.");
}

}  // namespace mscclpp::python
