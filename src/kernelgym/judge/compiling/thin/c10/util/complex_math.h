// Stands in for the real one, the functions of complex numbers: only for sources that name those.
#ifdef KERNELGYM_COMPLEX
#include_next <c10/util/complex_math.h>
#endif
