// Maps of files that may be cut while they are read, without the signal that kills the process.
// Windows has no such signal, for it keeps mapped files from being cut.
#pragma once

#include <cstddef>

namespace ggufkit {

// A file that is cut while it is mapped answers reading beyond its new end with SIGBUS. Between
// construction and destruction, a read of [begin, begin + size) finds zeros there instead, and
// `lost` says that it did. Other faults go where they would have gone.
class Guard {
  public:
    Guard(const void *begin, size_t size);
    ~Guard();
    Guard(const Guard &) = delete;
    Guard &operator=(const Guard &) = delete;

    bool lost() const;

    struct Range;

  private:
    Range *range_;
};

}  // namespace ggufkit
