"""The readers: one module each, found by `streams.readers.discovery`; there is nothing to register.

A module here (or named by another package under the entry-point group `streams.readers`) is a reader when it has a
`Reader` at module level. Modules with a leading underscore are parts of readers and are not looked into.
"""
