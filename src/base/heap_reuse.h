// Purpose: while one of these lives, the heap keeps freed memory for the next allocation instead of giving it
// back to the system. For work that allocates and frees hundreds of megabytes again and again: pages that are
// new to the process cost far more than their use (the system zeroes them, and a virtual machine may have to
// fetch them first). Thread: one at a time, on the thread that allocates. Does nothing where the C library is
// not glibc.
#pragma once

namespace quire {

class HeapReuse {
 public:
  HeapReuse();
  ~HeapReuse();  // gives back what is free
  HeapReuse(const HeapReuse&) = delete;
  HeapReuse& operator=(const HeapReuse&) = delete;
};

}  // namespace quire
