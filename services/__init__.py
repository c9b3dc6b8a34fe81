"""The small programs that run on hosts. Built by build.py; those on nodes, racks and the management host need
nothing but Python 3.9 or newer, querygate runs on an environment of its own."""
