"""Every error that Distributary raises on purpose, as one tree.

    StreamsError                      exit code 1
    ├── ConfigError              2    a setting or an argument is wrong
    ├── StackError               3    a local server did not install, start, stop or answer
    │   └── Unavailable          3    a server that we need does not answer (Postgres, Kafka, Connect, registry)
    │       └── Overloaded            too much waits already; carries when to come again
    ├── ReaderError              4    a reader is badly declared, or not found
    │   └── Unfinished           4    readers did not finish their documents in time, or gave some up
    ├── SchemaError              5    an event and its schema do not fit
    │   ├── BrokenFrame               the bytes are no Confluent wire frame, or are cut short
    │   ├── UnknownSchema             the registry has no such schema id
    │   └── Incompatible              a schema change that old or new events would not survive
    ├── SaveError                     a save was refused; nothing was written
    │   ├── InvalidField              a field is missing or malformed; carries its name
    │   ├── TooLarge                  the body is over the limit
    │   ├── UnusableFile              a file holds no text that can be saved
    │   └── NotFound                  there is no such document, job or query
    ├── RelayError               6    the connector, the publication or the slot is not as it must be
    │   └── RowRefused           6    the broker does not take a row of the outbox; carries its seq
    ├── ReplayRefused            7    a plan cannot be applied; no offset was changed
    ├── UnknownGroup             8    no such consumer group, with the nearest names
    ├── NotSolved                9    an exercise's solution lacks something
    ├── RescoreRefused          10    a re-score cannot be begun, resumed or cancelled; nothing was changed
    └── OwnershipLost                 another worker owns the partition now; nothing was written

Raised by every layer, caught by `streams.cli.main`, which prints the message as one sentence and exits with
`exit_code`. What a handler raises (`RetryLater`, `Reject`) belongs to the contract, not to this tree.
"""

from __future__ import annotations


class StreamsError(Exception):
    """The root: every message is one clear sentence that says what to do."""

    exit_code = 1


class ConfigError(StreamsError):
    """A setting or an argument is wrong."""

    exit_code = 2


class StackError(StreamsError):
    """A local server did not install, start, stop or answer."""

    exit_code = 3


class Unavailable(StackError):
    """A server that we need does not answer."""


class Overloaded(Unavailable):
    """Too much waits already; nothing was written."""

    def __init__(self, message: str, retry_after_seconds: int) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class ReaderError(StreamsError):
    """A reader is badly declared, or not found."""

    exit_code = 4


class Unfinished(ReaderError):
    """Readers did not finish their documents in time, or gave some up."""


class SchemaError(StreamsError):
    """An event and its schema do not fit."""

    exit_code = 5


class BrokenFrame(SchemaError):
    """The bytes are no Confluent wire frame (0x00, 4-byte schema id, Avro), or are cut short."""


class UnknownSchema(SchemaError):
    """The registry has no such schema id."""


class Incompatible(SchemaError):
    """A schema change that old or new events would not survive."""


class SaveError(StreamsError):
    """A save was refused; nothing was written."""


class InvalidField(SaveError):
    """A field is missing or malformed."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class TooLarge(SaveError):
    """The body is over the limit."""


class UnusableFile(SaveError):
    """A file holds no text that can be saved."""


class NotFound(SaveError):
    """There is no such document, job or query."""


class RelayError(StreamsError):
    """The connector, the publication or the slot is not as it must be."""

    exit_code = 6


class RowRefused(RelayError):
    """The broker does not take a row of the outbox."""

    def __init__(self, seq: int, reason: str) -> None:
        super().__init__(f"row {seq} cannot be published, and all behind it wait: {reason}")
        self.seq = seq
        self.reason = reason


class ReplayRefused(StreamsError):
    """A plan cannot be applied; no offset was changed."""

    exit_code = 7


class UnknownGroup(StreamsError):
    """No such consumer group."""

    exit_code = 8


class NotSolved(StreamsError):
    """An exercise's solution lacks something."""

    exit_code = 9


class RescoreRefused(StreamsError):
    """A re-score cannot be begun, resumed or cancelled; nothing was changed."""

    exit_code = 10


class OwnershipLost(StreamsError):
    """Another worker owns the partition now; nothing was written."""
