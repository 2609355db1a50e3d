// The handler may interrupt any thread anywhere: it takes no lock and frees nothing. Ranges are a
// list that only grows; an unused range has size zero, and is reused.
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
using Action = struct sigaction;

// Calls within this many bytes of stack below a handler that we called came from it.
constexpr uintptr_t NESTED_BYTES = 1 << 16;

std::atomic<Range *> ranges{nullptr};
std::mutex changing;
Action first;                               // what was installed before us
std::atomic<const Action *> above{&first};  // installed when we last took over
std::atomic<uintptr_t> forwarding{0};       // the stack where we called `above`, until it returns
uintptr_t page_bytes;

#ifndef MAP_ANONYMOUS
constexpr int MAP_ANONYMOUS = MAP_ANON;
#endif

// Maps zeros over the lost part: everything after the fault, because a cut removes all of it. The
// range is still mapped: its reader holds a buffer, and the range is unmapped only after release.
bool replaced(Range &range, uintptr_t fault) {
    const uintptr_t page = fault / page_bytes * page_bytes;
    const uintptr_t end = range.end.load();
    void *mapping = mmap(reinterpret_cast<void *>(page), end - page, PROT_READ,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (mapping == MAP_FAILED) return false;
    range.lost.store(true);
    return true;
}

bool is_handled(const siginfo_t *info) {
    if (info->si_code <= 0) return false;  // sent by a process, not caused by a read here
    const uintptr_t fault = reinterpret_cast<uintptr_t>(info->si_addr);
    for (Range *range = ranges.load(); range; range = range->next)
        if (fault >= range->begin.load() && fault < range->end.load())
            return replaced(*range, fault);
    return false;
}

void call(const Action &action, int number, siginfo_t *info, void *context) {
    if (action.sa_flags & SA_SIGINFO) {
        action.sa_sigaction(number, info, context);
    } else if (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN) {
        action.sa_handler(number);
    } else {
        // The faulting read repeats on return; a signal that was sent is sent again.
        signal(number, SIG_DFL);
        if (info->si_code <= 0) raise(number);
    }
}

void on_fault(int number, siginfo_t *info, void *context) {
    const int error = errno;
    const bool is_ours = is_handled(info);
    errno = error;
    if (is_ours) return;
    // A handler that was installed after us calls us, or raises the signal again, when it is done;
    // calling it again would recurse forever. Stacks grow downwards.
    const uintptr_t here = reinterpret_cast<uintptr_t>(&error), outer = forwarding.load();
    if (here < outer && outer - here < NESTED_BYTES) return call(first, number, info, context);
    forwarding.store(here);
    call(*above.load(), number, info, context);
    forwarding.store(outer);
}

bool is_on_top(const Action &action) {
    return (action.sa_flags & SA_SIGINFO) && action.sa_sigaction == on_fault;
}

// Installs our handler above any installed since; that one gets faults outside our ranges.
void come_on_top() {
    Action now = {};
    sigaction(SIGBUS, nullptr, &now);
    if (is_on_top(now)) return;
    if (page_bytes == 0) {
        page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
        first = now;
    } else {
        above.store(new Action(now));  // never freed: a handler may still read it
    }
    Action action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;  // nested signals arrive at once
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, nullptr);
}

Range *unused() {
    for (Range *range = ranges.load(); range; range = range->next)
        if (range->end.load() == 0) return range;
    Range *range = new Range;
    range->next = ranges.load();
    ranges.store(range);
    return range;
}

}  // namespace

Guard::Guard(const void *begin, size_t size) {
    const std::lock_guard<std::mutex> lock(changing);
    come_on_top();
    range_ = unused();
    range_->lost.store(false);
    range_->begin.store(reinterpret_cast<uintptr_t>(begin));
    range_->end.store(reinterpret_cast<uintptr_t>(begin) + size);
}

Guard::~Guard() { release(); }

void Guard::release() {
    const std::lock_guard<std::mutex> lock(changing);
    if (!range_) return;
    lost_ = range_->lost.load();
    range_->end.store(0);
    range_->begin.store(0);
    range_ = nullptr;
}

void Guard::renew() const {
    const std::lock_guard<std::mutex> lock(changing);
    if (range_) come_on_top();
}

bool Guard::lost() const {
    const std::lock_guard<std::mutex> lock(changing);
    return range_ ? range_->lost.load() : lost_;
}

}  // namespace ggufkit

#endif
