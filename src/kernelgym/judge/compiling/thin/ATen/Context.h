// Stands in for the real one, which every operator's header includes: without the global context
// and the hooks of every backend, unless a source or one of its headers names them.
#pragma once

#ifdef KERNELGYM_CONTEXT
#include_next <ATen/Context.h>
#else
#include <ATen/core/ATenGeneral.h>
#include <ATen/core/DeprecatedTypeProperties.h>
#include <ATen/core/Generator.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/CallOnce.h>
#include <c10/util/Exception.h>
#include <c10/util/env.h>
#include <c10/util/hash.h>
#include <c10/util/irange.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#endif
