// How a kernel's functions are handed to Python without its source ever seeing pybind11.
//
// The kernel unit fills a table of `Function` records from the functions' C++ types; the binding
// unit (binding.cpp, compiled once for all kernels) turns Python arguments into `Value`s and back.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace kernelgym {

enum class Tag : char { Tensor, Int, Float, Bool, String, Tensors, Ints, Floats };

struct Type {
  Tag tag;
  bool optional;
};

struct Value {
  bool present = true;
  at::Tensor tensor;
  int64_t integer = 0;
  double real = 0;
  std::string text;
  std::vector<at::Tensor> tensors;
  std::vector<int64_t> integers;
  std::vector<double> reals;
};

struct Function {
  const char* name;
  const char* doc;
  const Type* arguments;
  size_t argument_count;
  const Type* results;
  size_t result_count;
  bool returns_tuple;
  void (*call)(void (*function)(), Value* arguments, Value* results);
  void (*function)();
};

// An argument that does not fit its C++ type: reported as Python's TypeError.
struct BadArgument : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

template <typename T>
struct Kind; // a type without a Kind makes the builder fall back to pybind11

template <>
struct Kind<at::Tensor> {
  static constexpr Type type{Tag::Tensor, false};
  static at::Tensor& get(Value& v) { return v.tensor; }
  static void put(Value& v, at::Tensor x) { v.tensor = std::move(x); }
};
template <>
struct Kind<bool> {
  static constexpr Type type{Tag::Bool, false};
  static bool get(Value& v) { return v.integer != 0; }
  static void put(Value& v, bool x) { v.integer = x; }
};
template <typename T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char>)
struct Kind<T> {
  static constexpr Type type{Tag::Int, false};
  static T get(Value& v) {
    if (!std::in_range<T>(v.integer)) throw BadArgument("an integer does not fit its C++ type");
    return static_cast<T>(v.integer);
  }
  static void put(Value& v, T x) { v.integer = static_cast<int64_t>(x); }
};
template <typename T>
  requires std::is_floating_point_v<T>
struct Kind<T> {
  static constexpr Type type{Tag::Float, false};
  static T get(Value& v) { return static_cast<T>(v.real); }
  static void put(Value& v, T x) { v.real = static_cast<double>(x); }
};
template <>
struct Kind<std::string> {
  static constexpr Type type{Tag::String, false};
  static std::string& get(Value& v) { return v.text; }
  static void put(Value& v, std::string x) { v.text = std::move(x); }
};
template <>
struct Kind<std::vector<at::Tensor>> {
  static constexpr Type type{Tag::Tensors, false};
  static std::vector<at::Tensor>& get(Value& v) { return v.tensors; }
  static void put(Value& v, std::vector<at::Tensor> x) { v.tensors = std::move(x); }
};
template <>
struct Kind<std::vector<int64_t>> {
  static constexpr Type type{Tag::Ints, false};
  static std::vector<int64_t>& get(Value& v) { return v.integers; }
  static void put(Value& v, std::vector<int64_t> x) { v.integers = std::move(x); }
};
template <>
struct Kind<at::IntArrayRef> {
  static constexpr Type type{Tag::Ints, false};
  static at::IntArrayRef get(Value& v) { return v.integers; }
};
template <>
struct Kind<at::TensorList> {
  static constexpr Type type{Tag::Tensors, false};
  static at::TensorList get(Value& v) { return v.tensors; }
};
template <>
struct Kind<std::vector<double>> {
  static constexpr Type type{Tag::Floats, false};
  static std::vector<double>& get(Value& v) { return v.reals; }
  static void put(Value& v, std::vector<double> x) { v.reals = std::move(x); }
};
template <typename T>
struct Kind<std::optional<T>> {
  static constexpr Type type{Kind<T>::type.tag, true};
  static std::optional<T> get(Value& v) {
    return v.present ? std::optional<T>(Kind<T>::get(v)) : std::nullopt;
  }
  static void put(Value& v, std::optional<T> x) {
    v.present = x.has_value();
    if (x) Kind<T>::put(v, *std::move(x));
  }
};

template <typename R>
struct Returns {
  static constexpr bool tuple = false;
  static constexpr std::array<Type, 1> types{Kind<R>::type};
  static void put(Value* out, R x) { Kind<R>::put(out[0], std::move(x)); }
};
template <>
struct Returns<void> {
  static constexpr bool tuple = false;
  static constexpr std::array<Type, 0> types{};
};
template <typename... R>
struct Returns<std::tuple<R...>> {
  static constexpr bool tuple = true;
  static constexpr std::array<Type, sizeof...(R)> types{Kind<R>::type...};
  static void put(Value* out, std::tuple<R...> x) {
    put_each(out, std::move(x), std::index_sequence_for<R...>{});
  }
  template <size_t... I>
  static void put_each(Value* out, std::tuple<R...> x, std::index_sequence<I...>) {
    (Kind<R>::put(out[I], std::get<I>(std::move(x))), ...);
  }
};

template <typename R, typename... A>
struct Bound {
  static constexpr std::array<Type, sizeof...(A)> arguments{
      Kind<std::remove_cvref_t<A>>::type...};
  static void call(void (*function)(), Value* in, Value* out) {
    invoke(reinterpret_cast<R (*)(A...)>(function), in, out, std::index_sequence_for<A...>{});
  }
  template <size_t... I>
  static void invoke(R (*f)(A...), Value* in, Value* out, std::index_sequence<I...>) {
    if constexpr (std::is_void_v<R>) {
      f(Kind<std::remove_cvref_t<A>>::get(in[I])...);
    } else {
      Returns<std::remove_cvref_t<R>>::put(out, f(Kind<std::remove_cvref_t<A>>::get(in[I])...));
    }
  }
};

template <typename R, typename... A>
Function bind(const char* name, const char* doc, R (*f)(A...)) {
  using Result = Returns<std::remove_cvref_t<R>>;
  return {name, doc, Bound<R, A...>::arguments.data(), sizeof...(A), Result::types.data(),
          Result::types.size(), Result::tuple, &Bound<R, A...>::call,
          reinterpret_cast<void (*)()>(f)};
}

struct Table {
  const Function* functions;
  size_t count;
};
} // namespace kernelgym

// Defined by the kernel unit.
extern "C" kernelgym::Table kernelgym_functions();
