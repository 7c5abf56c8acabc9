"""The fourth reader of the log, on Faust: totals, windows, owners and hot keys of all documents, in memory."""
