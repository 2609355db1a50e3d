// The handler may interrupt any thread anywhere: it takes no lock and frees nothing. Ranges are a
// list that only grows; one that is no longer used has no size, and is used again.
#include "guard.hpp"

#if defined(__unix__) || defined(__APPLE__)

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>

namespace ggufkit {

struct Guard::Range {
    std::atomic<uintptr_t> begin{0}, end{0};
    std::atomic<bool> lost{false};
    Range *next = nullptr;
};

namespace {

using Range = Guard::Range;

std::atomic<Range *> ranges{nullptr};
std::mutex changing;
struct sigaction previous;
uintptr_t page_bytes;

#ifndef MAP_ANONYMOUS
constexpr int MAP_ANONYMOUS = MAP_ANON;
#endif

// Puts zeros in the place of what is gone: all that follows the fault, for a cut takes all.
bool replaced(Range &range, uintptr_t at) {
    const uintptr_t page = at / page_bytes * page_bytes;
    const uintptr_t end = range.end.load();
    void *made = mmap(reinterpret_cast<void *>(page), end - page, PROT_READ,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (made == MAP_FAILED) return false;
    range.lost.store(true);
    return true;
}

bool is_handled(const siginfo_t *info) {
    if (info->si_code <= 0) return false;  // sent by a process, not met by this one
    const uintptr_t at = reinterpret_cast<uintptr_t>(info->si_addr);
    for (Range *range = ranges.load(); range; range = range->next)
        if (at >= range->begin.load() && at < range->end.load()) return replaced(*range, at);
    return false;
}

void on_fault(int number, siginfo_t *info, void *context) {
    const int error = errno;
    const bool is_ours = is_handled(info);
    errno = error;
    if (is_ours) return;
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(number, info, context);
    } else if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
        previous.sa_handler(number);
    } else {
        // The faulting read is met again on return, and a signal that was sent is sent again.
        signal(number, SIG_DFL);
        if (info->si_code <= 0) raise(number);
    }
}

void install() {
    page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, nullptr, &previous);
    sigaction(SIGBUS, &action, nullptr);
}

Range *unused() {
    for (Range *range = ranges.load(); range; range = range->next)
        if (range->end.load() == 0) return range;
    Range *made = new Range;
    made->next = ranges.load();
    ranges.store(made);
    return made;
}

}  // namespace

Guard::Guard(const void *begin, size_t size) {
    const std::lock_guard<std::mutex> lock(changing);
    static const bool installed = (install(), true);
    (void)installed;
    range_ = unused();
    range_->lost.store(false);
    range_->begin.store(reinterpret_cast<uintptr_t>(begin));
    range_->end.store(reinterpret_cast<uintptr_t>(begin) + size);
}

Guard::~Guard() {
    const std::lock_guard<std::mutex> lock(changing);
    range_->end.store(0);
    range_->begin.store(0);
}

bool Guard::lost() const { return range_->lost.load(); }

}  // namespace ggufkit

#endif
