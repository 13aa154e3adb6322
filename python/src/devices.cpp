// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <dlfcn.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "mscclpp/host/env.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/gpu_buffer.hpp"
#include "mscclpp/host/launcher.hpp"
#include "mscclpp/host/multicast.hpp"

namespace mscclpp::python {
namespace {

// Of DLPack.
enum class TypeCode : std::uint8_t { integer = 0, natural = 1, real = 2, brain = 4, float8E4M3 = 10, float8E5M2 = 12 };
enum class Where : int { cpu = 1, cuda = 2 };

struct Element {
  DataType type;
  std::string_view name;  // of PyTorch and NumPy
  TypeCode code;
};
constexpr std::array elements{Element{DataType::float32, "float32", TypeCode::real},
                              Element{DataType::float64, "float64", TypeCode::real},
                              Element{DataType::float16, "float16", TypeCode::real},
                              Element{DataType::bfloat16, "bfloat16", TypeCode::brain},
                              Element{DataType::float8E4M3, "float8_e4m3fn", TypeCode::float8E4M3},
                              Element{DataType::float8E5M2, "float8_e5m2", TypeCode::float8E5M2},
                              Element{DataType::int8, "int8", TypeCode::integer},
                              Element{DataType::uint8, "uint8", TypeCode::natural},
                              Element{DataType::int32, "int32", TypeCode::integer},
                              Element{DataType::uint32, "uint32", TypeCode::natural},
                              Element{DataType::int64, "int64", TypeCode::integer},
                              Element{DataType::uint64, "uint64", TypeCode::natural}};

// "float16" or "torch.float16".
Element const& elementNamed(std::string_view name) {
  auto const bare = name.substr(name.rfind('.') + 1);
  auto const found = std::ranges::find(elements, bare, &Element::name);
  if (found != elements.end()) return *found;
  std::string all;
  for (auto const& each : elements) all += " " + std::string(each.name);
  refuse("there is no data type \"" + std::string(name) + "\"; there are" + all);
}

nb::dlpack::dtype dlpackOf(Element const& element) {
  return {static_cast<std::uint8_t>(element.code), static_cast<std::uint8_t>(8 * bytesOf(element.type)), 1};
}

std::string_view wordFor(DeviceKind kind) { return kind == DeviceKind::cuda ? "cuda" : "sim"; }

DeviceKind kindNamed(std::string_view name) {
  for (auto const kind : {DeviceKind::cuda, DeviceKind::sim}) {
    if (wordFor(kind) == name) return kind;
  }
  refuse("there is no kind of device \"" + std::string(name) + "\"; there are cuda and sim");
}

// "cuda:1", "sim", ...
Device deviceNamed(std::string_view name) {
  auto const colon = name.find(':');
  auto const kind = kindNamed(name.substr(0, colon));
  int ordinal = 0;
  if (colon != std::string_view::npos) {
    ordinal = static_cast<int>(parseInteger("device", std::string(name.substr(colon + 1)), 0, 1 << 20));
  }
  return {kind, ordinal};
}

std::string textOf(Device device) { return std::string(wordFor(device.kind)) + ":" + std::to_string(device.ordinal); }

// The driver's; that of device 0 where the thread has none.
int currentCudaDevice() {
  static auto* const get = [] {
    auto* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    return driver == nullptr ? nullptr : reinterpret_cast<int (*)(int*)>(::dlsym(driver, "cuCtxGetDevice"));
  }();
  int device = 0;
  return get != nullptr && get(&device) == 0 ? device : 0;
}

// Device memory as an object of Python, which arrays over it keep.
class RawGpuBuffer {
 public:
  RawGpuBuffer(std::size_t bytes, std::optional<Device> device)
      : memory_(std::make_shared<DeviceMemory>(device.value_or(currentDevice()), bytes, MemoryKind::shareable)) {}

  std::uintptr_t data() const { return reinterpret_cast<std::uintptr_t>(memory_->data()); }
  std::size_t bytes() const { return memory_->bytes(); }
  Device device() const { return memory_->device(); }

  // An array over all of it, or over its beginning where a shape is given; strides count elements.
  nb::ndarray<nb::array_api> toDlpack(std::string const& type, std::vector<std::size_t> shape,
                                      std::vector<std::int64_t> const& strides) const {
    auto const& element = elementNamed(type);
    auto const size = bytesOf(element.type);
    if (shape.empty()) shape.push_back(bytes() / size);
    if (!strides.empty() && strides.size() != shape.size()) {
      refuse("RawGpuBuffer.to_dlpack: " + std::to_string(strides.size()) + " strides for " +
             std::to_string(shape.size()) + " dimensions");
    }
    // The last element that the array has.
    std::size_t last = 0, packed = 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
      if (shape[i] == 0) refuse("RawGpuBuffer.to_dlpack: dimension " + std::to_string(i) + " has no elements");
      if (!strides.empty() && strides[i] < 0) {
        refuse("RawGpuBuffer.to_dlpack: stride " + std::to_string(strides[i]) + " of dimension " + std::to_string(i));
      }
      last += (shape[i] - 1) * (strides.empty() ? packed : static_cast<std::size_t>(strides[i]));
      packed *= shape[i];
    }
    if ((last + 1) * size > bytes()) {
      refuse("RawGpuBuffer.to_dlpack: the shape needs " + std::to_string((last + 1) * size) + " bytes of " +
             std::to_string(bytes()));
    }
    auto* const kept = new std::shared_ptr<DeviceMemory>(memory_);
    nb::capsule const owner(kept, [](void* p) noexcept { delete static_cast<std::shared_ptr<DeviceMemory>*>(p); });
    bool const isCuda = device().kind == DeviceKind::cuda;
    return nb::ndarray<nb::array_api>(
        memory_->data(), shape.size(), shape.data(), owner, strides.empty() ? nullptr : strides.data(),
        dlpackOf(element), static_cast<int>(isCuda ? Where::cuda : Where::cpu), isCuda ? device().ordinal : 0);
  }

 private:
  std::shared_ptr<DeviceMemory> memory_;
};

// What calls need to know of an array: address, bytes, element type, and the CUDA device that it is on or -1.
std::tuple<std::uintptr_t, std::size_t, DataType, int> describeArray(nb::ndarray<nb::ro> const& array) {
  auto const type = array.dtype();
  auto const found = std::ranges::find_if(elements, [&](Element const& each) { return dlpackOf(each) == type; });
  if (found == elements.end()) {
    refuse("an array of " + std::to_string(type.bits) + "-bit elements of DLPack's type " + std::to_string(type.code) +
           " cannot be communicated");
  }
  std::int64_t packed = 1;
  for (std::size_t i = array.ndim(); array.size() != 0 && i-- > 0;) {
    if (array.shape(i) != 1 && array.stride(i) != packed) {
      refuse("an array whose dimension " + std::to_string(i) + " has stride " + std::to_string(array.stride(i)) +
             " is not contiguous, which has stride " + std::to_string(packed) + " there; make a contiguous copy");
    }
    packed *= static_cast<std::int64_t>(array.shape(i));
  }
  int const where = array.device_type();
  if (where != static_cast<int>(Where::cpu) && where != static_cast<int>(Where::cuda)) {
    refuse("an array on a device of DLPack's type " + std::to_string(where) + "; arrays of CPU and CUDA can be used");
  }
  return {reinterpret_cast<std::uintptr_t>(array.data()), array.nbytes(), found->type,
          where == static_cast<int>(Where::cuda) ? array.device_id() : -1};
}

bool multicastSupported(std::optional<Device> device) {
  auto const where = device.value_or(currentDevice());
  if (!environment().multicast) return false;
  std::string why;
  return where.runtime().multicastSupported(where.ordinal, why);
}

}  // namespace

Device currentDevice() {
  auto const wanted = processVariable("MSCCLPP_DEVICE").value_or("");
  if (!wanted.empty() && wanted != "cuda" && wanted != "sim") {
    refuse("MSCCLPP_DEVICE is \"" + wanted + "\"; it may be cuda or sim, or empty");
  }
  if (wanted != "sim" && (wanted == "cuda" || Device::count(DeviceKind::cuda) > 0)) {
    return {DeviceKind::cuda, currentCudaDevice()};
  }
  auto const devices = Device::count(DeviceKind::sim);
  return {DeviceKind::sim, devices == 0 ? 0 : launchFromEnvironment().localRank % devices};
}

void bindDevices(nb::module_& module) {
  nb::enum_<DataType> types(module, "DataType", "Types of elements.");
  for (auto const& each : elements) types.value(std::string(each.name).c_str(), each.type);
  nb::enum_<ReduceOp>(module, "ReduceOp", "How contributions are combined; NOP where nothing is.")
      .value("SUM", ReduceOp::sum)
      .value("PROD", ReduceOp::prod)
      .value("MIN", ReduceOp::min)
      .value("MAX", ReduceOp::max)
      .value("AVG", ReduceOp::avg)
      .value("NOP", ReduceOp::none);
  module.def(
      "data_type_named", [](std::string_view name) { return elementNamed(name).type; }, nb::arg("name"),
      "The type of a name such as 'bfloat16' or 'torch.bfloat16'.");
  module.def(
      "bytes_of", [](DataType type) { return bytesOf(type); }, nb::arg("type"), "Of one element.");

  nb::class_<Device>(module, "Device", "A GPU, or a device of the simulated machine: Device('cuda:1'), Device('sim').")
      .def(
          "__init__", [](Device* self, std::string_view name) { new (self) Device(deviceNamed(name)); },
          nb::arg("name"))
      .def_static(
          "current", &currentDevice,
          "CUDA's current device; where there is no GPU, or MSCCLPP_DEVICE=sim, the simulated one of this rank.")
      .def_static(
          "count", [](std::string_view kind) { return Device::count(kindNamed(kind)); }, nb::arg("kind"),
          "How many there are of a kind: 'cuda' or 'sim'.")
      .def_prop_ro("kind", [](Device const& self) { return wordFor(self.kind); })
      .def_ro("ordinal", &Device::ordinal)
      .def_prop_ro("name", [](Device const& self) { return self.properties().name; })
      .def("__eq__", [](Device const& self, Device const& other) { return self == other; })
      .def("__hash__", [](Device const& self) { return std::hash<std::string>{}(textOf(self)); })
      .def("__str__", &textOf)
      .def("__repr__", [](Device const& self) { return "mscclpp.Device('" + textOf(self) + "')"; });

  nb::class_<RawGpuBuffer>(module, "RawGpuBuffer",
                           "Zero-filled device memory of a kind that all ranks of a host can map. On the simulated "
                           "machine the host reads and writes it, too.")
      .def(nb::init<std::size_t, std::optional<Device>>(), nb::arg("bytes"), nb::arg("device") = nb::none(),
           WithoutGil())
      .def("data", &RawGpuBuffer::data, "Its address.")
      .def("bytes", &RawGpuBuffer::bytes)
      .def_prop_ro("device", &RawGpuBuffer::device)
      .def("to_dlpack", &RawGpuBuffer::toDlpack, nb::arg("data_type"), nb::arg("shape") = std::vector<std::size_t>{},
           nb::arg("strides") = std::vector<std::int64_t>{},
           "An array of that type over the memory, which keeps it: for torch.utils.dlpack.from_dlpack and the like.")
      .def("__dlpack__",
           [](RawGpuBuffer const& self, nb::kwargs const& arguments) {
             return nb::cast(self.toDlpack("uint8", {}, {})).attr("__dlpack__")(**arguments);
           })
      .def("__dlpack_device__", [](RawGpuBuffer const& self) {
        bool const isCuda = self.device().kind == DeviceKind::cuda;
        return std::pair(static_cast<int>(isCuda ? Where::cuda : Where::cpu), isCuda ? self.device().ordinal : 0);
      });

  nb::class_<Stream>(module, "Stream", "A queue of work of a device.")
      .def(
          "__init__",
          [](Stream* self, std::optional<Device> device) { new (self) Stream(device.value_or(currentDevice())); },
          nb::arg("device") = nb::none())
      .def_prop_ro(
          "handle", [](Stream const& self) { return reinterpret_cast<std::uintptr_t>(self.native()); },
          "What the `stream` of calls takes; cudaStream_t on GPUs.")
      .def(
          "synchronize", [](Stream const& self) { self.synchronize(); }, WithoutGil(),
          "Returns when all its work is done.")
      .def("idle", &Stream::idle);

  module.def(
      "architecture_of",
      [](Device device) {
        auto const properties = device.properties();
        return 10 * properties.computeMajor + properties.computeMinor;
      },
      nb::arg("device"), "Of a GPU, as compilers take it: 90 for 9.0.");
  module.def("cache_folder", &cacheFolder,
             "Where what is compiled is kept, and plans are looked for, in its folder 'default'; empty: nowhere.");
#if defined(MSCCLPP_HAS_CUDA)
  module.attr("has_cuda") = true;
#else
  module.attr("has_cuda") = false;
#endif
  module.def("describe_array", &describeArray, nb::arg("array"));
  module.def("is_nvls_supported", &multicastSupported, nb::arg("device") = nb::none(),
             "Whether the device can take part in multicast memory, which a switch reads and writes.");
}

}  // namespace mscclpp::python
