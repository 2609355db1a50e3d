"""The limits of reading from servers: sizes, times and counts."""

from __future__ import annotations

from typing import Final

FIRST_BYTES: Final = 2 << 20  # of the first request: all headers with up to 50,000 tokens
SHORT_BYTES: Final = 1 << 16  # of the first request for a further shard: it has no vocabulary
PART_BYTES: Final = 8 << 20  # of one request of several in parallel: long compared to a round trip
BUFFER_BYTES: Final = 1 << 18  # read from a connection at once
GAP_BYTES: Final = 1 << 16  # between ranges that one request gets: less time than another request
MAX_GAPS_BYTES: Final = 1 << 20  # of such gaps in one call: what a caller may pay for nothing
PARALLEL: Final = 8  # requests of one call at the same time
CONNECTIONS: Final = 64  # open at once to one server
MAX_HEADER_BYTES: Final = 1 << 28  # of a header: the largest known has 40 MB

CONNECT_SECONDS: Final = 10.0
SILENT_SECONDS: Final = 30.0  # without a byte from the server
IDLE_SECONDS: Final = 30.0  # after which a kept connection is not used again
ANSWER_SECONDS: Final = 60.0  # for the head of a response, however slowly it comes
SLOW_SECONDS: Final = 60.0  # after which a read must have been faster than SLOWEST
SLOWEST: Final = 1 << 10  # bytes per second, over all requests of a read

TRIES: Final = 5  # of a request, without any progress between them
FEW_TRIES: Final = 2  # where more would seldom help: nothing listens, or nothing comes
FIRST_WAIT: Final = 0.5  # seconds before the second try; doubled before each further one
LONGEST_WAIT: Final = 30.0  # seconds between two tries
LONGEST_RETRY_AFTER: Final = 120.0  # seconds that a server may ask for; beyond it is an error
ALL_WAITS: Final = 600.0  # seconds between the tries of one read that do not count as slow
WARN_SECONDS: Final = 2.0  # of waiting, beyond which a warning says so
MAX_REDIRECTS: Final = 8
MAX_ERROR_BYTES: Final = 1 << 16  # of the body of a refusal: read only to keep the connection
