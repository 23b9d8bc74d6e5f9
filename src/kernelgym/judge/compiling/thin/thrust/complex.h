// Stands in for the real one, which torch's complex type brings into every CUDA source and which is
// a tenth of a thin build. A source that names complex numbers or CCCL gets the real one.
#pragma once

#ifdef KERNELGYM_COMPLEX
#include_next <thrust/complex.h>
#else
namespace thrust {
template <typename T>
struct complex;
template <typename T>
T abs(const complex<T>&);
template <typename T>
T arg(const complex<T>&);
template <typename T>
T norm(const complex<T>&);
template <typename T>
complex<T> polar(const T&, const T&);
} // namespace thrust
#endif
