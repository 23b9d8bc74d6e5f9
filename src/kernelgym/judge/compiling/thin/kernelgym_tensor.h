// torch::tensor, as <torch/csrc/autograd/generated/variable_factories.h> has it: a scalar gives a
// 0-d tensor and a dtype that Python would give it. at::tensor, which `torch` would find otherwise,
// gives a 1-d tensor of the scalar's own type. Included for sources that name either.
#pragma once

#include <c10/util/Logging.h> // prints a std::vector, which the next one does
#include <torch/detail/TensorDataContainer.h>

namespace torch {
inline at::Tensor tensor(
    detail::TensorDataContainer data,
    const at::TensorOptions& options = {}) {
  at::Tensor made = data.convert_to_tensor(options.requires_grad(std::nullopt));
  if (options.requires_grad()) {
    made.set_requires_grad(true);
  }
  return made;
}
} // namespace torch
