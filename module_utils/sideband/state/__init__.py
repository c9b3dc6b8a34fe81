"""What a host should hold (want) against what it holds (have), one class per kind of thing.

`engine` plans and applies, `record` keeps generations for exact undo, `guard` is the dead man's switch and
`recovery` is the program that runs on the host without Ansible: at boot, on link changes and when a guarded
change was not confirmed. Standard library alone, Python 3.9 or newer.
"""
