// The Python side of every extension built with the thin headers; compiled once per toolchain.
#include "kernelgym_bind.h"

#include <torch/csrc/utils/pybind.h>

namespace {
using kernelgym::Function;
using kernelgym::Tag;
using kernelgym::Type;
using kernelgym::Value;

template <typename T>
bool read(py::handle source, T& target) {
  py::detail::make_caster<T> caster;
  if (!caster.load(source, /*convert=*/true)) return false;
  target = py::detail::cast_op<T>(caster);
  return true;
}

bool convert(py::handle source, Type type, Value& value) {
  if (type.optional && source.is_none()) {
    value.present = false;
    return true;
  }
  switch (type.tag) {
    case Tag::Tensor: return read(source, value.tensor);
    case Tag::Int: return read(source, value.integer);
    case Tag::Float: return read(source, value.real);
    case Tag::Bool: {
      bool flag = false;
      bool fits = read(source, flag);
      value.integer = flag;
      return fits;
    }
    case Tag::String: return read(source, value.text);
    case Tag::Tensors: return read(source, value.tensors);
    case Tag::Ints: return read(source, value.integers);
    case Tag::Floats: return read(source, value.reals);
  }
  return false;
}

py::object produce(Value& value, Type type) {
  if (!value.present) return py::none();
  switch (type.tag) {
    case Tag::Tensor: return py::cast(value.tensor);
    case Tag::Int: return py::cast(value.integer);
    case Tag::Float: return py::cast(value.real);
    case Tag::Bool: return py::cast(value.integer != 0);
    case Tag::String: return py::cast(value.text);
    case Tag::Tensors: return py::cast(value.tensors);
    case Tag::Ints: return py::cast(value.integers);
    case Tag::Floats: return py::cast(value.reals);
  }
  return py::none();
}

py::object call(const Function& function, const py::args& given) {
  if (given.size() != function.argument_count) {
    throw py::type_error(std::string(function.name) + "() takes " +
                         std::to_string(function.argument_count) + " arguments, " +
                         std::to_string(given.size()) + " given");
  }
  std::vector<Value> arguments(function.argument_count), results(function.result_count);
  for (size_t i = 0; i < given.size(); ++i) {
    if (!convert(given[i], function.arguments[i], arguments[i])) {
      throw py::type_error(std::string(function.name) + "(): incompatible function arguments: " +
                           "argument " + std::to_string(i) + " is a " +
                           std::string(py::str(py::type::of(given[i]).attr("__name__"))));
    }
  }
  try {
    py::gil_scoped_release unlocked;
    function.call(function.function, arguments.data(), results.data());
  } catch (const kernelgym::BadArgument& error) {
    throw py::type_error(std::string(function.name) + "(): " + error.what());
  } catch (const c10::Error& error) {
    throw std::runtime_error(error.what_without_backtrace());
  }
  if (function.returns_tuple) {
    py::tuple all(results.size());
    for (size_t i = 0; i < results.size(); ++i) all[i] = produce(results[i], function.results[i]);
    return all;
  }
  return results.empty() ? py::none() : produce(results[0], function.results[0]);
}
} // namespace

PYBIND11_MODULE(kernelgym_extension, module) {
  auto table = kernelgym_functions();
  for (size_t i = 0; i < table.count; ++i) {
    const Function& function = table.functions[i];
    module.def(
        function.name, [&function](const py::args& given) { return call(function, given); },
        function.doc);
  }
}
