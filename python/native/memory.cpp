// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <algorithm>
#include <utility>

#include "raise.hpp"

namespace nb = nanobind;

namespace tandem_ec {

struct Memory::Name {
  const char *argument;
  std::ptrdiff_t index = -1;  // in a sequence

  friend std::ostream &operator<<(std::ostream &out, const Name &name) {
    out << name.argument;
    if (name.index >= 0) out << '[' << name.index << ']';
    return out;
  }
};

namespace {

constexpr const char *kOnlyBytes =
    " bytes; shards are of single bytes. A NumPy array of other numbers is seen as bytes by array.view(numpy.uint8)";

// The message of Python's own exception, as a part of ours.
std::string taken_error() {
  nb::python_error error;
  return nb::str(error.value()).c_str();
}

bool has_attribute(nb::handle object, const char *name) { return PyObject_HasAttrString(object.ptr(), name) != 0; }

const char *kind_of(nb::handle object) { return Py_TYPE(object.ptr())->tp_name; }

// The stream that the tensor's library uses now. Its earlier work is complete before the shards are read.
void *current_stream(nb::handle object, int device) {
  const nb::object module = nb::module_::import_("tandem_ec._streams");
  return reinterpret_cast<void *>(nb::cast<std::uintptr_t>(module.attr("current_stream")(object, device)));
}

}  // namespace

Memory::Memory(Memory &&other) noexcept
    : buffers_(std::exchange(other.buffers_, {})),
      tensors_(std::exchange(other.tensors_, {})),
      place_(other.place_),
      place_known_(other.place_known_) {}

void Memory::release() {
  for (Py_buffer &buffer : buffers_) PyBuffer_Release(&buffer);
  buffers_.clear();
  tensors_.clear();
}

void Memory::stay_in(const Place &place, const Name &name) {
  if (!place_known_) {
    place_ = place;
    place_known_ = true;
  } else if (place.memory != place_.memory || place.device != place_.device) {
    const auto where = [](const Place &p) {
      return p.memory == TANDEM_MEMORY_HOST ? std::string("host memory") : text("CUDA device ", p.device);
    };
    refuse(name, " lies in ", where(place), ", the shards before it in ", where(place_),
           ": all shards of a call lie in one place");
  }
}

Memory::View Memory::buffer_view(nb::handle object, const Name &name, bool writable) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(object.ptr(), &buffer, PyBUF_STRIDES) != 0) refuse(name, ": ", taken_error());
  buffers_.push_back(buffer);
  if (buffer.itemsize != 1) refuse(name, " has elements of ", buffer.itemsize, kOnlyBytes);
  if (writable && buffer.readonly)
    refuse(name, " is written and is read-only: ", buffer.len, " bytes of a ", kind_of(object));
  if (buffer.ndim != 1 && buffer.ndim != 2) refuse(name, " has ", buffer.ndim, " dimensions, not 1 or 2");
  stay_in({}, name);
  View view{static_cast<char *>(buffer.buf), static_cast<std::size_t>(buffer.ndim), {}, {}};
  for (int d = 0; d < buffer.ndim; ++d) {
    view.length[d] = static_cast<std::size_t>(buffer.shape[d]);
    view.step[d] = buffer.strides[d];
  }
  return view;
}

Memory::View Memory::dlpack_view(nb::handle object, const Name &name, bool writable) {
  nb::ndarray<nb::ro> tensor;
  if (!nb::try_cast(object, tensor)) refuse(name, " (", kind_of(object), ") does not give its memory by DLPack");
  if (writable) {
    nb::ndarray<> mutable_tensor;
    if (!nb::try_cast(object, mutable_tensor)) refuse(name, " is written and is read-only");
  }
  const nb::dlpack::dtype type = tensor.dtype();
  if (type.bits * type.lanes != 8) refuse(name, " has elements of ", type.bits * type.lanes / 8, kOnlyBytes);
  if (tensor.ndim() != 1 && tensor.ndim() != 2) refuse(name, " has ", tensor.ndim(), " dimensions, not 1 or 2");
  Place place;
  // The CPU reaches managed memory (13) and memory that CUDA has pinned (3).
  if (tensor.device_type() == nb::device::cuda::value) {
    place.memory = TANDEM_MEMORY_CUDA;
    place.device = tensor.device_id();
    place.stream = current_stream(object, place.device);
  } else if (tensor.device_type() != nb::device::cpu::value && tensor.device_type() != 3) {
    raise(TANDEM_ERROR_UNSUPPORTED,
          text(name, " lies in memory of DLPack's device type ", tensor.device_type(), "; known: CPU (1), CUDA (2)"));
  }
  stay_in(place, name);
  View view{static_cast<char *>(const_cast<void *>(static_cast<const void *>(tensor.data()))), tensor.ndim(), {}, {}};
  for (std::size_t d = 0; d < tensor.ndim(); ++d) {
    view.length[d] = tensor.shape(d);
    view.step[d] = static_cast<std::ptrdiff_t>(tensor.stride(d));
  }
  tensors_.push_back(std::move(tensor));
  return view;
}

Memory::View Memory::view(nb::handle object, const Name &name, bool writable) {
  if (PyObject_CheckBuffer(object.ptr())) return buffer_view(object, name, writable);
  if (has_attribute(object, "__dlpack__")) return dlpack_view(object, name, writable);
  refuse(name, " is a ", kind_of(object), ", which gives its memory neither by the buffer protocol nor by DLPack");
}

Memory::View Memory::one_view(nb::handle object, const Name &name, bool writable) {
  const View found = view(object, name, writable);
  if (found.dimensions != 1) refuse(name, " has 2 dimensions; it must be one buffer");
  if (found.length[0] > 1 && found.step[0] != 1)
    refuse(name, " has steps of ", found.step[0], " bytes; a shard is contiguous (numpy.ascontiguousarray copies)");
  return found;
}

Shards Memory::take_one(nb::handle object, const char *name, Access access) {
  const View found = one_view(object, Name{name}, access == Access::write);
  return {{found.data}, found.length[0]};
}

Shards Memory::take(nb::handle object, const char *name, std::size_t count, Access access, bool none_allowed,
                    const std::uint8_t *present) {
  const auto is_written = [&](std::size_t i) {
    return access == Access::write || (access == Access::write_missing && present[i] == 0);
  };
  Shards shards;
  PyObject *raw = object.ptr();
  const bool is_sequence = PyList_Check(raw) || PyTuple_Check(raw);
  if (!is_sequence && (PyObject_CheckBuffer(raw) || has_attribute(object, "__dlpack__"))) {
    bool any_written = false;
    for (std::size_t i = 0; i < count && !any_written; ++i) any_written = is_written(i);
    const View found = view(object, Name{name}, any_written);
    if (found.dimensions != 2)
      refuse(name, " is one buffer of ", found.length[0], " bytes; it must have the shape (", count,
             ", n) or be a sequence of ", count, " buffers");
    if (found.length[0] != count)
      refuse(name, " has the shape (", found.length[0], ", ", found.length[1], "); it must be (", count, ", n)");
    if (found.length[1] > 1 && found.step[1] != 1)
      refuse(name, " has rows with steps of ", found.step[1],
             " bytes; a shard is contiguous (numpy.ascontiguousarray copies)");
    shards.shard_bytes = found.length[1];
    if (shards.shard_bytes == 0 && count > 0) refuse(name, " has shards of 0 bytes");
    shards.pointers.resize(count);
    for (std::size_t i = 0; i < count; ++i)
      shards.pointers[i] = found.data + static_cast<std::ptrdiff_t>(i) * found.step[0];
    return shards;
  }
  if (PyUnicode_Check(raw)) refuse(name, " is a str; shards are bytes");
  const nb::object sequence = nb::steal(PySequence_Tuple(raw));
  if (!sequence.is_valid()) {
    PyErr_Clear();
    refuse(name, " is a ", kind_of(object), "; it must have the shape (", count, ", n) or be a sequence of ", count,
           " buffers");
  }
  const auto given = static_cast<std::size_t>(PyTuple_GET_SIZE(sequence.ptr()));
  if (given != count) refuse(name, " has ", given, " shards; it must have ", count);
  shards.pointers.resize(count);
  buffers_.reserve(buffers_.size() + count);
  std::size_t first = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Name entry{name, static_cast<std::ptrdiff_t>(i)};
    const nb::handle one = PyTuple_GET_ITEM(sequence.ptr(), static_cast<Py_ssize_t>(i));
    if (one.is_none()) {
      if (!none_allowed && !(access == Access::write_missing && present[i] == 0)) refuse(entry, " is None");
      continue;
    }
    const View found = one_view(one, entry, is_written(i));
    if (found.length[0] == 0) refuse(entry, " has 0 bytes");
    if (shards.shard_bytes == 0) {
      shards.shard_bytes = found.length[0];
      first = i;
    } else if (found.length[0] != shards.shard_bytes) {
      refuse(entry, " has ", found.length[0], " bytes, ", Name{name, static_cast<std::ptrdiff_t>(first)}, " has ",
             shards.shard_bytes, ": all shards of a call have one length");
    }
    shards.pointers[i] = found.data;
  }
  return shards;
}

void refuse_overlap(const std::vector<void *> &read, const std::vector<void *> &written, std::size_t shard_bytes) {
  std::vector<std::uintptr_t> sorted;
  sorted.reserve(written.size());
  for (const void *address : written)
    if (address != nullptr) sorted.push_back(reinterpret_cast<std::uintptr_t>(address));
  std::sort(sorted.begin(), sorted.end());
  const auto fail = [&](const char *what, std::uintptr_t a, std::uintptr_t b) {
    raise(TANDEM_ERROR_OVERLAP, text("a shard that is written overlaps ", what, ": their addresses are ",
                                     a < b ? b - a : a - b, " bytes apart, shards have ", shard_bytes, " bytes"));
  };
  for (std::size_t i = 1; i < sorted.size(); ++i)
    if (sorted[i] - sorted[i - 1] < shard_bytes) fail("another one", sorted[i], sorted[i - 1]);
  for (const void *address : read) {
    if (address == nullptr) continue;
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    const auto above = std::lower_bound(sorted.begin(), sorted.end(), begin);
    if (above != sorted.end() && *above - begin < shard_bytes) fail("one that is read", *above, begin);
    if (above != sorted.begin() && begin - above[-1] < shard_bytes) fail("one that is read", begin, above[-1]);
  }
}

std::vector<std::uint8_t> read_flags(nb::handle object, const char *name, std::size_t count) {
  std::vector<std::uint8_t> flags(count);
  if (PyUnicode_Check(object.ptr())) refuse(name, " is a str; it must be ", count, " truth values");
  const nb::object sequence = nb::steal(PySequence_Tuple(object.ptr()));
  if (!sequence.is_valid()) {
    PyErr_Clear();
    refuse(name, " is a ", kind_of(object), "; it must be ", count, " truth values");
  }
  const auto given = static_cast<std::size_t>(PyTuple_GET_SIZE(sequence.ptr()));
  if (given != count) refuse(name, " has ", given, " entries; it must have one for each of ", count, " shards");
  for (std::size_t i = 0; i < count; ++i) {
    const nb::handle one = PyTuple_GET_ITEM(sequence.ptr(), static_cast<Py_ssize_t>(i));
    const int truth = PyObject_IsTrue(one.ptr());
    if (truth < 0) throw nb::python_error();
    flags[i] = truth != 0;
  }
  return flags;
}

nb::object empty(std::int64_t count, std::int64_t shard_bytes) {
  if (count < 1 || count > std::int64_t{1} << 20) refuse("count is ", count, "; it must be 1 to ", 1 << 20);
  if (shard_bytes < 1) refuse("n is ", shard_bytes, "; a shard has 1 byte or more");
  std::vector<void *> pointers(static_cast<std::size_t>(count));
  check(tandem_shards_allocate(pointers.size(), static_cast<std::size_t>(shard_bytes), 0, pointers.data()));
  const nb::capsule owner(pointers[0], [](void *first) noexcept { tandem_shards_free(first); });
  const std::ptrdiff_t step =
      count > 1 ? static_cast<char *>(pointers[1]) - static_cast<char *>(pointers[0]) : shard_bytes;
  const std::size_t shape[2] = {pointers.size(), static_cast<std::size_t>(shard_bytes)};
  const std::int64_t strides[2] = {step, 1};
  for (std::size_t i = 0; i < pointers.size(); ++i)
    if (pointers[i] != static_cast<char *>(pointers[0]) + static_cast<std::ptrdiff_t>(i) * step)
      raise(TANDEM_ERROR_INTERNAL,
            text("tandem_shards_allocate: shard ", i, " is not ", step, " bytes after the last"));
  return nb::cast(nb::ndarray<nb::numpy, std::uint8_t>(pointers[0], 2, shape, owner, strides));
}

}  // namespace tandem_ec
