// Maps of files that may be cut while they are read, without the signal that kills the process.
// Windows has no such signal, for it keeps mapped files from being cut.
#pragma once

#include <cstddef>

namespace ggufkit {

// A file that is cut while it is mapped answers reading beyond its new end with SIGBUS. Between
// construction and `release`, a read of [begin, begin + size) finds zeros there instead, and `lost`
// says that it did. Release the guard before the range is unmapped: what is mapped there next is
// not ours. Other faults go to the handler that would have had them.
class Guard {
  public:
    Guard(const void *begin, size_t size);
    ~Guard();
    Guard(const Guard &) = delete;
    Guard &operator=(const Guard &) = delete;

    bool lost() const;
    void release();
    void renew() const;  // takes faults again where another handler was installed since

    struct Range;

  private:
    Range *range_;
    bool lost_ = false;
};

}  // namespace ggufkit
