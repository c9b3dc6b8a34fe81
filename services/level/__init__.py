"""The two ends of the hand-over: `sideband-level` signs and sends, `sideband-accept` takes on a rack."""
