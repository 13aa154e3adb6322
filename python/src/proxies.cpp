// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Threads of the host that act for kernels: port channels with the service that works for them, and proxies with a
// handler in Python.
//
// What has such threads waits for them when it goes. Another rank of this process, or a handler, may need the
// interpreter's lock meanwhile, so that is let go.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "bindings.hpp"
#include "handles.hpp"
#include "mscclpp/host/port_channel.hpp"
#include "mscclpp/host/proxy.hpp"

namespace mscclpp::python {
namespace {

class Service : public ProxyService {
 public:
  using ProxyService::ProxyService;
  ~Service() {
    nb::gil_scoped_release const released;
    stopProxy();
  }
};

// A proxy whose handler is a function of Python. That may lead back to the proxy, as closures do, which the
// interpreter's collector has to see.
class HandlerProxy : public Proxy {
 public:
  using Function = std::shared_ptr<nb::callable>;

  HandlerProxy(Communicator const& communicator, Function function, ProxyOptions const& options)
      : Proxy(
            communicator,
            [function](layout::Trigger const& trigger, std::uint64_t position) {
              return call(*function, trigger, position);
            },
            options),
        function_(std::move(function)) {
    all().insert(this);
  }
  ~HandlerProxy() {
    all().erase(this);
    stopWithoutGil();
  }
  void stopWithoutGil() {
    nb::gil_scoped_release const released;
    stop();
  }

  // Before the interpreter ends, behind which no handler can run.
  static void stopAll() {
    for (auto* const each : std::set(all())) {
      if (all().contains(each)) each->stopWithoutGil();
    }
  }
  static int traverse(PyObject* object, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(object));
    if (nb::inst_ready(object)) Py_VISIT(nb::inst_ptr<HandlerProxy>(object)->function_->ptr());
    return 0;
  }
  static int clear(PyObject* object) {
    auto& self = *nb::inst_ptr<HandlerProxy>(object);
    self.stopWithoutGil();
    self.function_->reset();
    return 0;
  }

 private:
  static ProxyAction call(nb::callable const& function, layout::Trigger const& trigger, std::uint64_t position) {
    nb::gil_scoped_acquire const lock;
    try {
      nb::object const answer = function(trigger, position);
      return answer.is_none() ? ProxyAction::goOn : nb::cast<ProxyAction>(answer);
    } catch (nb::python_error const& error) {
      throw std::runtime_error(std::string(nb::str(error.type().attr("__name__")).c_str()) + ": " +
                               nb::str(error.value()).c_str());
    } catch (nb::cast_error const&) {
      throw std::runtime_error("it returned something that is neither None nor a ProxyAction");
    }
  }
  // By whoever holds the interpreter's lock.
  static std::set<HandlerProxy*>& all() {
    static std::set<HandlerProxy*> proxies;
    return proxies;
  }

  Function function_;
};

PyType_Slot proxySlots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&HandlerProxy::traverse)},
                            {Py_tp_clear, reinterpret_cast<void*>(&HandlerProxy::clear)},
                            {0, nullptr}};

void bindProxyHandles(nb::module_& module) {
  using layout::BasePortChannelHandle, layout::FifoHandle, layout::PortChannelHandle;
  HandleClass<FifoHandle>(module, "FifoHandle", "A kernel's DeviceHandle<Fifo>.")
      .with<&FifoHandle::size>("size", "Triggers that it has room for.")
      .with<&FifoHandle::proxy>("proxy", "Shown in reports.");
  HandleClass<BasePortChannelHandle>(module, "BasePortChannelHandle", "A kernel's DeviceHandle<BasePortChannel>.")
      .with<&BasePortChannelHandle::fifo>("fifo")
      .with<&BasePortChannelHandle::inbound>("inbound", "Address of 8 bytes here: signals that arrived.")
      .with<&BasePortChannelHandle::expected>("expected", "Address of 8 bytes here: signals waited for so far.")
      .with<&BasePortChannelHandle::peer>("peer")
      .with<&BasePortChannelHandle::semaphore>("semaphore_id", "Its number in the service.");
  HandleClass<PortChannelHandle>(module, "PortChannelHandle", "A kernel's DeviceHandle<PortChannel>.")
      .with<&PortChannelHandle::base>("base")
      .with<&PortChannelHandle::dstMemory>("dst", "Number of the peer's memory.")
      .with<&PortChannelHandle::srcMemory>("src", "Number of this rank's memory.")
      .with<&PortChannelHandle::dstBytes>("dst_bytes")
      .with<&PortChannelHandle::srcBytes>("src_bytes");
}

void bindService(nb::module_& module) {
  nb::class_<BasePortChannel>(module, "BasePortChannel", "Signals, and puts between memories named at each call.")
      .def_prop_ro("peer", &BasePortChannel::peer)
      .def("device_handle", &BasePortChannel::deviceHandle);
  nb::class_<PortChannel>(module, "PortChannel", "Between one memory of this rank and one of the peer.")
      .def_prop_ro("peer", &PortChannel::peer)
      .def("device_handle", &PortChannel::deviceHandle);
  using FromService = nb::keep_alive<0, 1>;
  nb::class_<Service>(
      module, "ProxyService",
      "Proxies that carry out what kernels push into port channels. It holds semaphores and memories by "
      "number: at most 1024 and 512.")
      .def(
          "__init__",
          [](Service* self, Communicator const& communicator, std::uint32_t fifoSize, int proxies) {
            new (self) Service(communicator, {.proxies = proxies, .fifoSize = fifoSize});
          },
          nb::arg("communicator"), nb::arg("fifo_size") = Fifo::defaultSize, nb::arg("proxies") = 1,
          nb::keep_alive<1, 2>(), "`fifo_size`: triggers of each proxy's queue, a power of two.")
      .def(
          "add_semaphore",
          [](Service& self, Host2DeviceSemaphore const& semaphore) { return self.addSemaphore(semaphore); },
          nb::arg("semaphore"), "Its number.")
      .def(
          "build_and_add_semaphore",
          [](Service& self, std::shared_ptr<Connection> connection, int tag) {
            return self.buildAndAddSemaphore(std::move(connection), tag);
          },
          nb::arg("connection"), nb::arg("tag") = 0, WithoutGil(), "By both ranks, with the same tag. Its number.")
      .def(
          "add_memory", [](Service& self, RegisteredMemory const& memory) { return self.addMemory(memory); },
          nb::arg("memory"), "Own memory, or a peer's. Its number.")
      .def(
          "next_memory_id", [](Service const& self, std::uint32_t count) { return self.nextMemoryId(count); },
          nb::arg("count") = 1, "What add_memory() returns next. Raises where there is no room for `count` more.")
      .def(
          "base_port_channel", [](Service const& self, SemaphoreId id) { return self.basePortChannel(id); },
          nb::arg("semaphore"), FromService())
      .def(
          "port_channel",
          [](Service const& self, SemaphoreId semaphore, MemoryId dst, MemoryId src) {
            return self.portChannel(semaphore, dst, src);
          },
          nb::arg("semaphore"), nb::arg("dst"), nb::arg("src"), FromService(),
          "`dst` is memory of the semaphore's peer, `src` of this rank.")
      .def(
          "start_proxy", [](Service& self) { self.startProxy(); }, WithoutGil())
      .def(
          "stop_proxy", [](Service& self) { self.stopProxy(); }, WithoutGil(), "First carries out what was pushed.")
      .def(
          "progress", [](Service& self, int proxy) { return self.progress(proxy); }, nb::arg("proxy") = 0, WithoutGil(),
          "One step of a proxy that does not block, in place of start_proxy(); whether it did anything.");
}

void bindProxy(nb::module_& module) {
  nb::class_<layout::Trigger>(module, "Trigger", "What a kernel pushes to a proxy: 127 bits.")
      .def_ro("fst", &layout::Trigger::fst)
      .def_ro("snd", &layout::Trigger::snd, "Its highest bit is 0.");
  nb::enum_<ProxyAction>(module, "ProxyAction", "What a handler returns.")
      .value("go_on", ProxyAction::goOn)
      .value("stop", ProxyAction::stop);
  nb::class_<Fifo>(module, "Fifo", "The queue between kernels, which push, and a proxy.")
      .def_prop_ro("size", &Fifo::size, "Triggers that it has room for.")
      .def("device_handle", &Fifo::deviceHandle);
  nb::class_<HandlerProxy>(module, "Proxy",
                           "A thread that hands what kernels push to `handler(trigger, position)`, which returns None "
                           "or a ProxyAction. What it raises ends the proxy, and check_reports() of the communicator "
                           "raises that. The handler does not block.",
                           nb::type_slots(proxySlots))
      .def(
          "__init__",
          [](HandlerProxy* self, Communicator const& communicator, nb::callable handler, std::uint32_t fifoSize) {
            new (self) HandlerProxy(communicator, heldFunction(std::move(handler)), {.fifoSize = fifoSize});
          },
          nb::arg("communicator"), nb::arg("handler"), nb::arg("fifo_size") = Fifo::defaultSize, nb::keep_alive<1, 2>(),
          "`fifo_size`: triggers, a power of two.")
      .def_prop_ro(
          "fifo", [](HandlerProxy& self) -> Fifo& { return self.fifo(); }, nb::rv_policy::reference_internal)
      .def(
          "start", [](HandlerProxy& self) { self.start(); }, WithoutGil())
      .def(
          "stop", [](HandlerProxy& self) { self.stop(); }, WithoutGil(), "First handles what was pushed.")
      .def_prop_ro("running", [](HandlerProxy const& self) { return self.running(); })
      .def(
          "progress", [](HandlerProxy& self) { return self.progress(); }, WithoutGil(),
          "One step that does not block, in place of start(); whether it did anything.");
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&HandlerProxy::stopAll));
}

}  // namespace

void bindProxies(nb::module_& module) {
  bindProxyHandles(module);
  bindService(module);
  bindProxy(module);
}

}  // namespace mscclpp::python
