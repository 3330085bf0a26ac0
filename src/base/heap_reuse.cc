#include "base/heap_reuse.h"

#include <cstdlib>
#include <limits>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace quire {

#if defined(__GLIBC__)
HeapReuse::HeapReuse() {
  mallopt(M_MMAP_MAX, 0);  // large blocks too come from the heap's own range
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}
HeapReuse::~HeapReuse() {
  // The library's defaults, except that its thresholds no longer adapt.
  mallopt(M_MMAP_MAX, 65536);
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  mallopt(M_TRIM_THRESHOLD, 2 << 20);
  malloc_trim(0);
}
#else
HeapReuse::HeapReuse() = default;
HeapReuse::~HeapReuse() = default;
#endif

}  // namespace quire
