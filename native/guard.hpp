// Guards maps of files that may be cut while they are read, against the signal that kills the
// process. Windows has no such signal: it does not let mapped files be cut.
#pragma once

#include <cstddef>

namespace ggufkit {

// If a file is cut while it is mapped, reading beyond its new end raises SIGBUS. Between
// construction and `release`, a read of [begin, begin + size) gets zeros there instead, and `lost`
// becomes true. Release the guard before the range is unmapped: the next map there is not ours.
// Other faults go to the handler that was installed before.
class Guard {
public:
    Guard(const void *begin, size_t size);
    ~Guard();
    Guard(const Guard &) = delete;
    Guard &operator=(const Guard &) = delete;

    bool lost() const;
    void release();
    void renew() const;  // takes faults again if another handler was installed since

    struct Range;

private:
    Range *range_;
    bool lost_ = false;
};

}  // namespace ggufkit
